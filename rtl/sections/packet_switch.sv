// Packet switch: Inputs to Outputs, packets of beats, each with a type and a header of its own.
//
// A packet goes to an output of its type that is free, the one that became free first. Inputs have long FIFOs, outputs
// short ones; switch_control has the three state machines and says what is kept in order. As many packets go over at a
// time as there are connections. Inputs may be cut through, or announce a packet once it is there as a whole
// (StoreForward): then a slow sender does not hold an output. A packet that is longer than the FIFO is cut through anyway.
//
// Bit 0 of a beat says that it is the packet's last. The header (s_user_i) and the type are taken with a packet's first beat; m_user_o is the header from a packet's first
// beat to its last. A packet of a type that no output has is taken and dropped.
module packet_switch #(
  parameter  int unsigned Inputs       = 4,
  parameter  int unsigned Outputs      = 4,
  parameter  int unsigned Types        = 2,
  parameter  int unsigned UserWidth    = 8,
  parameter  int unsigned BeatWidth    = $bits(esp_pkg::beat_t),
  parameter  int unsigned InDepth      = 128,   // beats, a power of two
  parameter  int unsigned InFrames     = 8,     // packets, a power of two
  parameter  int unsigned OutDepth     = 16,
  parameter  int unsigned OutFrames    = 1,     // 1 or 2; a second packet may follow while the first is inside
  parameter  bit          OutRegister  = 1'b0,  // behind an output's memory: a packet stays a cycle longer
  parameter  bit          StoreForward = 1'b0,
  localparam int unsigned InWidth      = Inputs > 1 ? $clog2(Inputs) : 1,
  localparam int unsigned OutWidth     = Outputs > 1 ? $clog2(Outputs) : 1,
  localparam int unsigned TypeWidth    = Types > 1 ? $clog2(Types) : 1
) (
  input  logic                               clk_i,
  input  logic                               rst_ni,
  input  logic [ Inputs-1:0]                 s_valid_i,
  output logic [ Inputs-1:0]                 s_ready_o,
  input  logic [ Inputs-1:0][BeatWidth-1:0]  s_beat_i,
  input  logic [ Inputs-1:0][UserWidth-1:0]  s_user_i,
  input  logic [ Inputs-1:0][TypeWidth-1:0]  s_type_i,
  input  logic [ Inputs-1:0]                 s_turn_i,        // the next packet may be registered (order_keeper)
  output logic [ Inputs-1:0]                 s_registered_o,  // it is
  output logic [Outputs-1:0]                 m_valid_o,
  input  logic [Outputs-1:0]                 m_ready_i,
  output logic [Outputs-1:0][BeatWidth-1:0]  m_beat_o,
  output logic [Outputs-1:0][UserWidth-1:0]  m_user_o,
  input  logic [Outputs-1:0]                 m_busy_i,  // the unit wants no packet yet
  input  logic [Outputs-1:0][TypeWidth-1:0]  m_type_i,  // must not change
  output logic                               sent_valid_o,
  output logic [OutWidth-1:0]                sent_output_o,
  input  logic                               sent_ready_i,    // for two
  output logic                               dropped_o  // a packet was dropped: nobody has its type
);
  // One output and one type more than outside: the sink of packets that nobody wants.
  localparam int unsigned InnerWidth = $clog2(Outputs + 1);
  localparam int unsigned InnerTypeWidth = $clog2(Types + 1);

  logic [Inputs-1:0] frame_valid, frame_ready, in_connected, in_done;
  logic [Inputs-1:0][InnerTypeWidth-1:0] frame_type;
  logic [Inputs-1:0][InnerWidth-1:0] in_output;
  logic [Inputs-1:0] head_valid, head_ready;
  logic [Inputs-1:0][BeatWidth-1:0] head_beat;
  logic [Inputs-1:0][UserWidth-1:0] head_user;
  logic [Outputs:0] out_connected, out_busy, out_left, out_ready;
  logic [Outputs:0][InnerTypeWidth-1:0] out_type;
  logic [Outputs:0][InWidth-1:0] out_input;
  logic sent_valid;
  logic [InnerWidth-1:0] sent_output;

  switch_control #(
    .Inputs   (Inputs),
    .Outputs  (Outputs + 1),
    .Types    (Types + 1),
    .InFrames (InFrames),
    .OutFrames(OutFrames)
  ) u_control (
    .clk_i,
    .rst_ni,
    .frame_valid_i  (frame_valid),
    .frame_type_i   (frame_type),
    .frame_ready_o  (frame_ready),
    .frame_turn_i   (s_turn_i),
    .in_connected_o (in_connected),
    .in_output_o    (in_output),
    .out_connected_o(out_connected),
    .out_input_o    (out_input),
    .in_done_i      (in_done),
    .out_busy_i     (out_busy),
    .out_type_i     (out_type),
    .out_left_i     (out_left),
    .sent_valid_o   (sent_valid),
    .sent_output_o  (sent_output),
    .sent_ready_i
  );
  assign s_registered_o = frame_ready;
  assign sent_valid_o  = sent_valid && sent_output != InnerWidth'(Outputs);
  assign sent_output_o = OutWidth'(sent_output);

  logic [Types-1:0] served;
  always_comb begin
    served = '0;
    for (int unsigned t = 0; t < Types; t++)
      for (int unsigned m = 0; m < Outputs; m++) if (m_type_i[m] == TypeWidth'(t)) served[t] = 1'b1;
  end

  for (genvar i = 0; i < Inputs; i++) begin : gen_input
    logic data_ready, user_ready, user_valid;
    logic first_q, announced_q, take, announce, known;
    logic [TypeWidth-1:0] type_q, type_now;
    logic [InnerTypeWidth-1:0] type_inner;
    logic [$clog2(InDepth+3)-1:0] data_count;
    logic [$clog2(InFrames+1)-1:0] user_count, type_count;

    assign s_ready_o[i] = data_ready && (!first_q || user_ready);
    assign take         = s_valid_i[i] && s_ready_o[i];
    assign type_now     = first_q ? s_type_i[i] : type_q;
    // A packet is announced once. Should the FIFO be full before its end is there, it must go over at once.
    assign announce = StoreForward ? !announced_q && ((take && s_beat_i[i][0]) || (!first_q && !data_ready))
                                   : take && first_q;
    assign known = 32'(type_now) < Types && served[type_now];
    assign type_inner = known ? InnerTypeWidth'(type_now) : InnerTypeWidth'(Types);

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        first_q     <= 1'b1;
        announced_q <= 1'b0;
      end else begin
        if (take) first_q <= s_beat_i[i][0];
        if (take && s_beat_i[i][0]) announced_q <= 1'b0;
        else if (announce) announced_q <= 1'b1;
      end
    end
    always_ff @(posedge clk_i) if (take && first_q) type_q <= s_type_i[i];

    stream_fifo #(
      .Width(BeatWidth),
      .Depth(InDepth),
      .Extra(1'b1)
    ) u_data (
      .clk_i,
      .rst_ni,
      .valid_i(take),
      .ready_o(data_ready),
      .data_i (s_beat_i[i]),
      .valid_o(head_valid[i]),
      .ready_i(head_ready[i]),
      .data_o (head_beat[i]),
      .count_o(data_count)
    );
    small_fifo #(
      .Width(UserWidth),
      .Depth(InFrames)
    ) u_user (
      .clk_i,
      .rst_ni,
      .valid_i(take && first_q),
      .ready_o(user_ready),
      .data_i (s_user_i[i]),
      .valid_o(user_valid),
      .ready_i(in_done[i]),
      .data_o (head_user[i]),
      .count_o(user_count)
    );
    // Never full where u_user is not: a packet is in there from its announcement to its registration.
    small_fifo #(
      .Width(InnerTypeWidth),
      .Depth(InFrames),
      .NeverFull(1'b1)
    ) u_announced (
      .clk_i,
      .rst_ni,
      .valid_i(announce),
      .ready_o(),
      .data_i (type_inner),
      .valid_o(frame_valid[i]),
      .ready_i(frame_ready[i]),
      .data_o (frame_type[i]),
      .count_o(type_count)
    );

    assign head_ready[i] = in_connected[i] && out_ready[in_output[i]];
    assign in_done[i]    = head_ready[i] && head_valid[i] && head_beat[i][0];
    logic unused;
    assign unused = &{data_count, user_count, type_count, user_valid};
  end

  for (genvar m = 0; m < Outputs; m++) begin : gen_output
    logic first_q, put, user_valid;
    logic [BeatWidth-1:0] beat;
    logic [$clog2(OutDepth+(OutRegister?3:2))-1:0] data_count;
    logic [1:0] user_count;
    assign out_type[m] = InnerTypeWidth'(m_type_i[m]);
    assign out_busy[m] = m_busy_i[m];
    assign out_left[m] = m_valid_o[m] && m_ready_i[m] && m_beat_o[m][0];
    assign beat        = head_beat[out_input[m]];
    assign put         = out_connected[m] && head_valid[out_input[m]];

    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) first_q <= 1'b1;
      else if (put && out_ready[m]) first_q <= beat[0];
    end

    stream_fifo #(
      .Width(BeatWidth),
      .Depth(OutDepth),
      .Extra(OutRegister)
    ) u_data (
      .clk_i,
      .rst_ni,
      .valid_i(put),
      .ready_o(out_ready[m]),
      .data_i (beat),
      .valid_o(m_valid_o[m]),
      .ready_i(m_ready_i[m]),
      .data_o (m_beat_o[m]),
      .count_o(data_count)
    );
    // Its data come earlier than those of u_data.
    small_fifo #(
      .Width(UserWidth),
      .Depth(2),
      .NeverFull(1'b1)
    ) u_user (
      .clk_i,
      .rst_ni,
      .valid_i(put && out_ready[m] && first_q),
      .ready_o(),
      .data_i (head_user[out_input[m]]),
      .valid_o(user_valid),
      .ready_i(out_left[m]),
      .data_o (m_user_o[m]),
      .count_o(user_count)
    );
    logic unused;
    assign unused = &{data_count, user_count, user_valid};
  end

  // The sink.
  assign out_type[Outputs]  = InnerTypeWidth'(Types);
  assign out_busy[Outputs]  = 1'b0;
  assign out_ready[Outputs] = 1'b1;
  assign out_left[Outputs]  = out_connected[Outputs] && in_done[out_input[Outputs]];
  assign dropped_o          = out_left[Outputs];
endmodule
