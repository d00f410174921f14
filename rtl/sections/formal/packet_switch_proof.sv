// The whole of packet_switch, for its first cycles: its control is proven by induction in switch_control, its FIFOs in
// stream_fifo; here is what joins them. One packet of input 0 is marked, header and beats. It comes out once, whole, in
// one piece, with its header, at an output of its type; and soon if it is alone and the surroundings are ready (Fair).
// A later packet of the same input and type never comes before it at the only output of that type (Order, where packets
// have one beat and the surroundings are ready, so that it comes within the steps that can be looked at).
module packet_switch_proof #(
  parameter bit StoreForward = 1'b0,
  parameter bit Fair         = 1'b0,
  parameter bit Order        = 1'b0
) (
  input logic            clk_i,
  input logic [1:0]      s_valid_i,
  input logic [1:0][2:0] s_beat_i,
  input logic [1:0][1:0] s_user_i,
  input logic [1:0]      s_type_i,
  input logic [1:0]      s_turn_i,
  input logic [1:0]      m_ready_i,
  input logic [1:0]      m_busy_i,
  input logic [1:0]      m_type_i,
  input logic            sent_ready_i,
  input logic            follow_i,
  input logic            later_i
);
  localparam logic [1:0] Mark = 2'd3, Later = 2'd2;
  localparam int unsigned Soon = 16;

  logic rst_nq = 1'b0;
  always_ff @(posedge clk_i) rst_nq <= 1'b1;

  logic [1:0] s_ready, m_valid, s_registered, m_type_q;
  logic [1:0][2:0] m_beat;
  logic [1:0][1:0] m_user;
  logic sent_valid, sent_output, dropped;
  packet_switch #(
    .Inputs(2),
    .Outputs(2),
    .Types(2),
    .UserWidth(2),
    .BeatWidth(3),
    .InDepth(2),
    .InFrames(2),
    .OutDepth(2),
    .StoreForward(StoreForward)
  ) u_switch (
    .clk_i,
    .rst_ni(rst_nq),
    .s_valid_i,
    .s_ready_o(s_ready),
    .s_beat_i,
    .s_user_i,
    .s_type_i,
    .s_turn_i,
    .s_registered_o(s_registered),
    .m_valid_o(m_valid),
    .m_ready_i,
    .m_beat_o(m_beat),
    .m_user_o(m_user),
    .m_busy_i,
    .m_type_i(m_type_q),
    .sent_valid_o(sent_valid),
    .sent_output_o(sent_output),
    .sent_ready_i,
    .dropped_o(dropped)
  );

  // In: the marked packet is the first that follow_i picks.
  logic first_q = 1'b1, following_q = 1'b0, followed_q = 1'b0, type_q;
  logic take, marked;
  logic [2:0] in_q = '0, out_q = '0;
  logic gone_q = 1'b0;
  logic [4:0] wait_q = '0;
  assign take   = s_valid_i[0] && s_ready[0];
  assign marked = first_q ? follow_i && !followed_q : following_q;
  // The later one is the first that later_i picks behind it.
  logic behind, behind_q = 1'b0, later_q = 1'b0;
  assign behind = first_q ? later_i && followed_q && !later_q : behind_q;
  always_ff @(posedge clk_i) begin
    if (!rst_nq) m_type_q <= m_type_i;
    // Only the marked packet has the mark, on each beat.
    assume ((s_beat_i[0][2:1] == Mark) == marked);
    assume ((s_user_i[0] == Mark) == marked);
    assume ((s_beat_i[0][2:1] == Later) == behind);
    if (behind && first_q) assume (s_type_i[0] == type_q);
    assume (!s_beat_i[1][2] && s_user_i[1] != Mark);
    if (Order) begin
      assume (s_beat_i[0][0] && s_beat_i[1][0]);
      assume (m_ready_i == '1 && m_busy_i == '0 && s_turn_i == '1 && sent_ready_i);
    end
    // Packets of at most three beats.
    if (in_q == 3'd2 && marked) assume (s_beat_i[0][0]);
    // With nothing but the marked packet under way it is a matter of cycles.
    if (Fair) begin
      assume (m_ready_i == '1 && m_busy_i == '0 && s_turn_i == '1 && sent_ready_i);
      assume (follow_i && s_valid_i == {1'b0, !followed_q || following_q});
    end
    if (rst_nq && take) begin
      first_q <= s_beat_i[0][0];
      if (behind) begin
        behind_q <= !s_beat_i[0][0];
        later_q  <= 1'b1;
      end
      if (marked) begin
        in_q <= in_q + 1'b1;
        following_q <= !s_beat_i[0][0];
        followed_q  <= 1'b1;
        if (first_q) type_q <= s_type_i[0];
      end
    end
  end

  // Out.
  logic [1:0] come;
  for (genvar m = 0; m < 2; m++) begin : gen_out
    assign come[m] = m_valid[m] && m_beat[m][2:1] == Mark;
    always_ff @(posedge clk_i) if (rst_nq && m_valid[m]) begin
      assert ((m_beat[m][2:1] == Mark) == (m_user[m] == Mark));
      if (come[m]) assert (followed_q && m_type_q[m] == type_q && !gone_q && out_q < in_q);
      if (m_beat[m][2:1] == Later && m_type_q[!m] != type_q) assert (gone_q);
      // In one piece: no other packet's beat while it is on its way out.
      if (come[m] && m_beat[m][0]) assert (!following_q && out_q + 1'b1 == in_q);
    end
  end
  logic leaves;
  assign leaves = |(come & m_ready_i);
  always_ff @(posedge clk_i) if (rst_nq) begin
    assert (come != 2'b11);
    if (leaves) begin
      out_q <= out_q + 1'b1;
      if (|(come & m_ready_i & {m_beat[1][0], m_beat[0][0]})) gone_q <= 1'b1;
    end
    if (out_q != '0 && !gone_q) begin
      for (int unsigned m = 0; m < 2; m++)
        if (m_type_q[m] == type_q && m_type_q[!m] != type_q && m_valid[m]) assert (come[m]);
    end
    // Soon: counted from its last beat in.
    if (followed_q && !following_q && !gone_q) wait_q <= wait_q + 1'b1;
    if (Fair && (m_type_q[0] == type_q || m_type_q[1] == type_q)) assert (gone_q || wait_q < 5'(Soon));
    if (m_type_q[0] != type_q && m_type_q[1] != type_q && followed_q) assert (out_q == '0);
    if (!Order) cover (gone_q && in_q == 3'd3);
    // The later one, at the only output of its type.
    if (Order) cover (gone_q && m_type_q[0] != m_type_q[1] &&
        |(m_valid & {m_beat[1][2:1] == Later, m_beat[0][2:1] == Later}));
  end
endmodule
