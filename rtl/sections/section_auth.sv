// A unit of the HMAC section: HMAC-SHA1-96 (RFC 2404) over ESP header and body, appended to the packet.
//
// What is hashed begins in the middle of the second beat. Beats wait in a FIFO until their ICV is there; the next
// packet's first ones are taken meanwhile, so that hashing goes on.
module section_auth
  import sections_pkg::*;
(
  input  logic           clk_i,
  input  logic           rst_ni,
  input  logic           s_valid_i,
  output logic           s_ready_o,
  input  esp_pkg::beat_t s_beat_i,
  input  cipher_head_t   s_user_i,
  output logic           m_valid_o,
  input  logic           m_ready_i,
  output esp_pkg::beat_t m_beat_o,
  output auth_head_t     m_user_o
);
  import esp_pkg::*;

  // In: the states' beats are taken; each one behind goes to the FIFO and, shifted by half a beat, to the hash.
  typedef enum logic [2:0] {States, Begin, Second, Rest, Flush} state_e;
  state_e state_q;
  logic [1:0] left_q;  // of the states' beats, less one
  logic [128*StateBeats-1:0] states_q;
  logic [63:0] half_q;
  logic [7:0] half_keep_q;
  logic cmd_ready, msg_valid, msg_ready, store_ready, wide_end, take;
  beat_t msg;

  assign wide_end = s_beat_i.last && |s_beat_i.keep[15:8];
  always_comb begin
    msg.data = {s_beat_i.data[63:0], half_q};
    msg.keep = {s_beat_i.keep[7:0], 8'hff};
    msg.last = s_beat_i.last && !wide_end;
    if (state_q == Flush) msg = '{data: {64'd0, half_q}, keep: {8'd0, half_keep_q}, last: 1'b1};
  end
  // The command goes with the first beat; the hash takes nothing of it.
  logic start, hash_ready;
  assign start      = state_q == Begin;
  assign hash_ready = start ? cmd_ready : state_q == Second || msg_ready;
  assign s_ready_o  = state_q == States || (state_q != Flush && store_ready && hash_ready);
  assign take       = s_valid_i && s_ready_o && state_q != States;
  assign msg_valid  = state_q == Flush || (state_q == Rest && s_valid_i && store_ready);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= States;
      left_q  <= 2'(StateBeats - 1);
    end else begin
      if (state_q == States && s_valid_i) left_q <= left_q == '0 ? 2'(StateBeats - 1) : left_q - 1'b1;
      unique case (state_q)
        States: if (s_valid_i && left_q == '0) state_q <= Begin;
        Begin: if (take) state_q <= Second;
        Second: if (take) state_q <= Rest;
        Rest: if (take && s_beat_i.last) state_q <= wide_end ? Flush : States;
        Flush: if (msg_ready) state_q <= States;
      endcase
    end
  end
  always_ff @(posedge clk_i) begin
    if (state_q == States && s_valid_i) states_q <= {states_q[128*(StateBeats-1)-1:0], in_order(s_beat_i.data)};
    if (take) begin
      half_q      <= s_beat_i.data[127:64];
      half_keep_q <= s_beat_i.keep[15:8];
    end
  end

  logic icv_valid, icv_ready;
  logic [159:0] icv;
  hmac_unit #(
    .Sha1(1'b1)
  ) u_hmac (
    .clk_i,
    .rst_ni,
    .cmd_valid_i(start && s_valid_i && store_ready),
    .cmd_ready_o(cmd_ready),
    .inner_i    (states_q[128*StateBeats-1-:160]),
    .outer_i    (states_q[128*StateBeats-161-:160]),
    .msg_valid_i(msg_valid),
    .msg_ready_o(msg_ready),
    .msg_i      (msg),
    .icv_valid_o(icv_valid),
    .icv_ready_i(icv_ready),
    .icv_o      (icv)
  );

  logic held_valid, held_ready;
  word_t held;
  beat_t held_beat;
  port_t port;
  logic [5:0] unused_count;
  assign held_beat = to_beat(held);
  stream_fifo #(
    .Width($bits(word_t) + $bits(port_t)),
    .Depth(32)
  ) u_store (
    .clk_i,
    .rst_ni,
    .valid_i(take),
    .ready_o(store_ready),
    .data_i ({s_user_i.port, to_word(s_beat_i)}),
    .valid_o(held_valid),
    .ready_i(held_ready),
    .data_o ({port, held}),
    .count_o(unused_count)
  );

  // Out: the last beat waits for the ICV; what does not fit behind it is a beat of its own.
  logic [95:0] icv_bytes;
  logic [2:0] used;  // words of the beat, 1 to 4
  logic extra_q, over;
  logic [127:0] extra_data;
  logic [15:0] extra_keep;
  always_comb for (int unsigned i = 0; i < 12; i++) icv_bytes[8*i+:8] = icv[159-8*i-:8];
  // A packet's length is a multiple of 4 bytes.
  assign used = 3'(held.bytes[3:2]) + 3'd1;
  assign over = used > 3'd1;
  assign extra_data = 128'(icv_bytes) >> {3'd4 - used, 5'd0};
  assign extra_keep = 16'h0fff >> {3'd4 - used, 2'd0};

  always_comb begin
    m_beat_o = held_beat;
    if (extra_q) begin
      m_beat_o = '{data: extra_data, keep: extra_keep, last: 1'b1};
    end else if (held.last) begin
      m_beat_o.data = (held.data & ~(128'd0 - (128'd1 << {used, 5'd0}))) | (128'(icv_bytes) << {used, 5'd0});
      m_beat_o.keep = held_beat.keep | 16'(17'h00fff << {used, 2'd0});
      m_beat_o.last = !over;
    end
  end
  assign m_user_o   = '{port: port, lead: 1'b1};
  assign m_valid_o  = held_valid && (!held.last || icv_valid);
  assign held_ready = m_ready_i && (!held.last || (icv_valid && (extra_q || !over)));
  assign icv_ready  = held_valid && held.last && held_ready;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) extra_q <= 1'b0;
    else if (m_valid_o && m_ready_i) extra_q <= held.last && over && !extra_q;
  end

  logic unused;
  assign unused = &{s_user_i.auth, icv[63:0], states_q[63:0]};
endmodule
