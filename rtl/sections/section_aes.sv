// A unit of the ciphering section: AES-CBC (RFC 3602) over the body, the block that becomes the IV being its first.
module section_aes
  import sections_pkg::*;
(
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

  // The key is taken; what else is in front and the lead pass; the command for the body goes with the last beat of these.
  localparam int unsigned PassBeats = StateBeats + LeadBeats - 1;
  typedef enum logic [2:0] {Key, Pass, Command, Body, Drain} state_e;
  state_e state_q;
  logic [2:0] left_q;  // of the beats of a state, less one
  logic cmd_ready, in_ready, out_valid, out_last, lead;
  logic [255:0] key_q;
  block_t out_block;
  cipher_head_t head_q;

  assign lead      = state_q == Pass || (state_q == Command && cmd_ready);
  assign s_ready_o = lead ? m_ready_i : state_q == Key || (state_q == Body && in_ready);
  assign m_valid_o = lead ? s_valid_i : out_valid;
  assign m_beat_o  = lead ? s_beat_i : '{data: from_block(out_block), keep: '1, last: out_last};
  assign m_user_o  = lead ? '{port: s_user_i.port, auth: s_user_i.auth} : head_q;

  aes_cbc_unit #(
    .Lanes(1)
  ) u_aes (
    .clk_i,
    .rst_ni,
    .cmd_valid_i(state_q == Command && s_valid_i && m_ready_i),
    .cmd_ready_o(cmd_ready),
    .key_i      (key_q),
    .aes128_i   (!s_user_i.wide),
    .iv_i       ('0),
    .valid_i    (state_q == Body && s_valid_i),
    .ready_o    (in_ready),
    .block_i    (to_block(s_beat_i.data)),
    .last_i     (s_beat_i.last),
    .valid_o    (out_valid),
    .ready_i    (m_ready_i && !lead),
    .block_o    (out_block),
    .last_o     (out_last)
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Key;
      left_q  <= 3'(KeyBeats - 1);
    end else begin
      if ((state_q == Key && s_valid_i) || (state_q == Pass && s_valid_i && m_ready_i)) begin
        left_q <= left_q != '0 ? left_q - 1'b1 : state_q == Key ? 3'(PassBeats - 1) : 3'(KeyBeats - 1);
      end
      unique case (state_q)
        Key: if (s_valid_i && left_q == '0) state_q <= Pass;
        Pass: if (s_valid_i && m_ready_i && left_q == '0) state_q <= Command;
        Command: if (s_valid_i && m_ready_i && cmd_ready) state_q <= Body;
        Body: if (s_valid_i && in_ready && s_beat_i.last) state_q <= Drain;
        Drain: if (out_valid && m_ready_i && out_last) state_q <= Key;
      endcase
    end
  end
  always_ff @(posedge clk_i) begin
    if (state_q == Key && s_valid_i) key_q <= {key_q[127:0], in_order(s_beat_i.data)};
    if (state_q == Command) head_q <= m_user_o;
  end

  logic unused;
  assign unused = &{s_user_i.cipher};
endmodule
