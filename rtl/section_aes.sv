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

  // Lead0 and Lead1 pass; the command for the body goes with the latter.
  typedef enum logic [1:0] {Lead0, Lead1, Body, Drain} state_e;
  state_e state_q;
  logic cmd_ready, in_ready, out_valid, out_last, lead;
  block_t out_block;
  cipher_head_t head_q;

  assign lead      = state_q == Lead0 || (state_q == Lead1 && cmd_ready);
  assign s_ready_o = lead ? m_ready_i : state_q == Body && in_ready;
  assign m_valid_o = lead ? s_valid_i : out_valid;
  assign m_beat_o  = lead ? s_beat_i : '{data: from_block(out_block), keep: '1, last: out_last};
  assign m_user_o  = lead ? '{port: s_user_i.port, auth: s_user_i.auth, states: s_user_i.states} : head_q;

  aes_cbc_unit #(
    .Lanes(1)
  ) u_aes (
    .clk_i,
    .rst_ni,
    .cmd_valid_i(state_q == Lead1 && s_valid_i && m_ready_i),
    .cmd_ready_o(cmd_ready),
    .key_i      (s_user_i.key),
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
      state_q <= Lead0;
    end else begin
      unique case (state_q)
        Lead0: if (s_valid_i && m_ready_i) state_q <= Lead1;
        Lead1: if (s_valid_i && m_ready_i && cmd_ready) state_q <= Body;
        Body: if (s_valid_i && in_ready && s_beat_i.last) state_q <= Drain;
        default: if (out_valid && m_ready_i && out_last) state_q <= Lead0;
      endcase
    end
  end
  always_ff @(posedge clk_i) if (state_q == Lead1) head_q <= m_user_o;

  logic unused;
  assign unused = &{s_user_i.cipher};
endmodule
