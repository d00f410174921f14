// A unit of the ciphering section: DES in ECB mode, as in the published design, 128 bits a cycle through two pipelines
// side by side; or Triple-DES with three keys. For comparison only: no IPsec peer speaks ECB, and neither it nor DES keeps a
// secret (RFC 8221).
module section_des
  import sections_pkg::*;
#(
  parameter bit          Triple   = 1'b0,
  parameter int unsigned OutDepth = 64  // beats, a power of two, more than the pipeline holds
) (
  input  logic           clk_i,
  input  logic           rst_ni,
  input  logic           s_valid_i,
  output logic           s_ready_o,
  input  esp_pkg::beat_t s_beat_i,
  input  encap_head_t    s_user_i,
  output logic           m_valid_o,
  input  logic           m_ready_i,
  output esp_pkg::beat_t m_beat_o,
  output cipher_head_t   m_user_o
);
  import esp_pkg::*;
  localparam int unsigned CountWidth = $clog2(OutDepth + 2);

  // The key is taken. Every beat behind it goes the same way, so that they keep their order; those in front of the body
  // wait in a FIFO beside the pipelines. These never stop: a beat is taken when there is room for it behind them.
  localparam int unsigned Ahead = KeyBeats + StateBeats + LeadBeats;
  logic [2:0] ahead_q;  // of the beats in front of the body
  localparam int unsigned Keys = Triple ? 3 : 1;
  logic [64*Keys-1:0] key_q;
  logic [127:0] key_words;
  logic key, take, out_take;
  logic [CountWidth-1:0] room_q;
  assign key       = ahead_q > 3'(Ahead - KeyBeats);
  assign s_ready_o = room_q != '0;
  assign take      = s_valid_i && s_ready_o && !key;
  assign out_take  = m_valid_o && m_ready_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      ahead_q <= 3'(Ahead);
      room_q  <= CountWidth'(OutDepth);
    end else begin
      if (s_valid_i && s_ready_o) ahead_q <= s_beat_i.last ? 3'(Ahead) : ahead_q - 3'(ahead_q != '0);
      room_q <= room_q + CountWidth'(out_take) - CountWidth'(take);
    end
  end
  assign key_words = {s_beat_i.data[31:0], s_beat_i.data[63:32], s_beat_i.data[95:64], s_beat_i.data[127:96]};
  if (Triple) begin : g_three_keys
    always_ff @(posedge clk_i) begin
      if (ahead_q == 3'(Ahead)) key_q[191:64] <= key_words;
      if (ahead_q == 3'(Ahead - 1)) key_q[63:0] <= key_words[127:64];
    end
  end else begin : g_one_key
    always_ff @(posedge clk_i) if (ahead_q == 3'(Ahead)) key_q <= key_words[127:64];
  end

  // Beside: what each beat is, and the data of those in front.
  typedef struct packed {
    cipher_head_t head;
    logic lead;
    word_t word;
  } beside_t;
  beside_t beside, beside_in;
  assign beside_in.head = '{port: s_user_i.port, auth: s_user_i.auth};
  assign beside_in.lead = ahead_q != '0;
  assign beside_in.word = to_word(s_beat_i);

  logic beside_valid, beside_ready;
  logic [CountWidth-1:0] unused_beside;
  stream_fifo #(
    .Width($bits(beside_t)),
    .Depth(OutDepth),
    .NeverFull(1'b1)
  ) u_beside (
    .clk_i,
    .rst_ni,
    .valid_i(take),
    .ready_o(),
    .data_i (beside_in),
    .valid_o(beside_valid),
    .ready_i(beside_ready),
    .data_o (beside),
    .count_o(unused_beside)
  );

  block_t in_block, out_block;
  logic [1:0] out_valid;
  assign in_block = to_block(s_beat_i.data);
  for (genvar i = 0; i < 2; i++) begin : gen_des
    des_core #(
      .Triple(Triple)
    ) u_des (
      .clk_i,
      .rst_ni,
      .valid_i  (take && ahead_q == '0),
      .key_i    (key_q),
      .data_i   (in_block[64*i+:64]),
      .valid_o  (out_valid[i]),
      .data_o   (out_block[64*i+:64])
    );
  end

  logic done_valid, done_ready;
  block_t done_block;
  logic [CountWidth-1:0] unused_done;
  stream_fifo #(
    .Width(DataWidth),
    .Depth(OutDepth),
    .NeverFull(1'b1)
  ) u_done (
    .clk_i,
    .rst_ni,
    .valid_i(out_valid[0]),
    .ready_o(),
    .data_i (out_block),
    .valid_o(done_valid),
    .ready_i(done_ready),
    .data_o (done_block),
    .count_o(unused_done)
  );

  assign m_valid_o    = beside_valid && (beside.lead || done_valid);
  assign beside_ready = out_take;
  assign done_ready   = out_take && !beside.lead;
  assign m_user_o     = beside.head;
  always_comb begin
    m_beat_o = to_beat(beside.word);
    if (!beside.lead) m_beat_o.data = from_block(done_block);
  end

  logic unused;
  assign unused = &{s_user_i.cipher, s_user_i.wide, out_valid[1], key_words[63:0]};
endmodule
