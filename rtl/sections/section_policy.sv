// A unit of the policy section: reads the selectors from a frame's first two beats, looks them up and writes where the
// frame goes next into its header. What is no sound IPv4 packet goes nowhere, and so does a packet with IP options:
// its ports lie elsewhere and an exact match could not tell. Later fragments have ports of 0.
module section_policy
  import sections_pkg::*;
(
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               s_valid_i,
  output logic               s_ready_o,
  input  esp_pkg::beat_t     s_beat_i,
  input  frame_head_t        s_user_i,
  output logic               m_valid_o,
  input  logic               m_ready_i,
  output esp_pkg::beat_t     m_beat_o,
  output policy_head_t       m_user_o,
  output logic               write_ready_o,
  input  logic               write_i,
  input  logic [        7:0] write_bucket_i,
  input  logic [        1:0] write_way_i,
  input  policy_t            write_entry_i
);
  import esp_pkg::*;
  localparam logic [7:0] Icmp = 8'd1, Tcp = 8'd6, Udp = 8'd17;

  typedef enum logic [2:0] {First, Second, Start, Lookup, SendFirst, SendSecond, Stream} state_e;
  state_e state_q;
  beat_t first_q, second_q;
  frame_head_t head_q;
  logic malformed_q, sums_q;
  logic [4:0][16:0] pairs_q;
  logic [19:0] sum_q;
  logic [15:0] folded_q;
  policy_t policy;
  action_e action_q;
  row_t row_q;
  generation_t generation_q;
  logic table_ready, table_done, get, put;

  assign s_ready_o = state_q == First || state_q == Second || (state_q == Stream && m_ready_i);
  assign get       = s_valid_i && s_ready_o;
  assign m_valid_o = state_q == SendFirst || state_q == SendSecond || (state_q == Stream && s_valid_i);
  assign m_beat_o  = state_q == SendFirst ? first_q : state_q == SendSecond ? second_q : s_beat_i;
  assign put       = m_valid_o && m_ready_i;

  // The header's fields.
  logic [127:0] a;
  logic [63:0] b;
  selector_t selector;
  logic [9:0][15:0] word;  // of the header
  logic fragment, has_ports;
  assign a         = first_q.data;
  assign b         = second_q.data[63:0];
  assign fragment  = {a[52:48], a[63:56]} != '0;
  assign has_ports = (a[79:72] == Tcp || a[79:72] == Udp || a[79:72] == Icmp) && !fragment && head_q.bytes >= 16'd24;
  always_comb begin
    selector.source           = a[127:96];
    selector.destination      = b[31:0];
    selector.protocol         = a[79:72];
    selector.source_port      = has_ports && a[79:72] != Icmp ? b[47:32] : '0;
    selector.destination_port = has_ports && a[79:72] != Icmp ? b[63:48] : '0;
    for (int unsigned i = 0; i < 10; i++) word[i] = i < 8 ? swap16(a[16*i+:16]) : swap16(b[16*(i-8)+:16]);
  end

  logic malformed;
  assign malformed = a[7:0] != 8'h45 || head_q.bytes < 16'd20 || swap16(a[31:16]) != head_q.bytes || a[71:64] < 8'd2;

  pearson_policy u_table (
    .clk_i,
    .rst_ni,
    .ready_o       (table_ready),
    .start_i       (state_q == Start),
    .selector_i    (selector),
    .done_o        (table_done),
    .policy_o      (policy),
    .write_ready_o,
    .write_i,
    .write_bucket_i,
    .write_way_i,
    .write_entry_i
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= First;
    end else begin
      unique case (state_q)
        First: if (get) state_q <= s_beat_i.last ? Start : Second;
        Second: if (get) state_q <= Start;
        Start: if (table_ready) state_q <= Lookup;
        Lookup: if (table_done) state_q <= SendFirst;
        SendFirst: if (put) state_q <= first_q.last ? First : SendSecond;
        SendSecond: if (put) state_q <= second_q.last ? First : Stream;
        Stream: if (put && s_beat_i.last) state_q <= First;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (get && state_q == First) begin
      first_q <= s_beat_i;
      head_q  <= s_user_i;
    end
    if (get && state_q == Second) second_q <= s_beat_i;
    if (state_q == Start) malformed_q <= malformed;
    // The header's sum is there long before the table's answer.
    for (int unsigned i = 0; i < 5; i++) pairs_q[i] <= 17'(word[2*i]) + 17'(word[2*i+1]);
    sum_q    <= (20'(pairs_q[0]) + 20'(pairs_q[1])) + (20'(pairs_q[2]) + 20'(pairs_q[3])) + 20'(pairs_q[4]);
    folded_q <= fold(sum_q);
    sums_q   <= folded_q == 16'hffff;
    if (table_done) begin
      action_q     <= policy.valid ? policy.action : Discard;
      row_q        <= policy.row;
      generation_q <= policy.generation;
    end
  end

  always_comb begin
    m_user_o = '{port: head_q.port, sad: UnitNobody, generation: generation_q, row: row_q, bytes: head_q.bytes};
    if (!malformed_q && sums_q) begin
      if (action_q == Protect) m_user_o.sad = UnitMain;
      if (action_q == Bypass) m_user_o.sad = UnitPass;
    end
  end

  logic unused;
  assign unused = &{policy.selector};
endmodule
