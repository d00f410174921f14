// An exit: takes the four zero bytes off the front of protected packets, so that frames leave as they are on the wire.
module section_exit
  import sections_pkg::*;
(
  input  logic           clk_i,
  input  logic           rst_ni,
  input  logic           s_valid_i,
  output logic           s_ready_o,
  input  esp_pkg::beat_t s_beat_i,
  input  auth_head_t     s_user_i,
  output logic           m_valid_o,
  input  logic           m_ready_i,
  output esp_pkg::beat_t m_beat_o
);
  // A beat is made of the upper twelve bytes of one and the lower four of the next.
  logic [95:0] rest_q;
  logic [11:0] rest_keep_q;
  logic rest_valid_q, flush_q, shift, move, ends;

  assign shift = s_user_i.lead;
  assign move  = !m_valid_o || m_ready_i;
  // The packet's last bytes fit behind what is there.
  assign ends      = s_beat_i.last && s_beat_i.keep[15:4] == '0;
  assign s_ready_o = move && !flush_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      rest_valid_q <= 1'b0;
      flush_q      <= 1'b0;
      m_valid_o    <= 1'b0;
    end else if (move) begin
      if (flush_q) begin
        m_valid_o    <= 1'b1;
        flush_q      <= 1'b0;
        rest_valid_q <= 1'b0;
      end else begin
        m_valid_o <= s_valid_i && (!shift || rest_valid_q);
        if (s_valid_i && shift) begin
          rest_valid_q <= !ends;
          flush_q      <= s_beat_i.last && !ends;
        end
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (move) begin
      if (flush_q) begin
        m_beat_o <= '{data: {32'd0, rest_q}, keep: {4'd0, rest_keep_q}, last: 1'b1};
      end else if (shift) begin
        m_beat_o.data <= {s_beat_i.data[31:0], rest_q};
        m_beat_o.keep <= {s_beat_i.keep[3:0], 12'hfff};
        m_beat_o.last <= ends;
      end else begin
        m_beat_o <= s_beat_i;
      end
      if (s_valid_i && !flush_q) begin
        rest_q      <= s_beat_i.data[127:32];
        rest_keep_q <= s_beat_i.keep[15:4];
      end
    end
  end

  logic unused;
  assign unused = &{s_user_i.port};
endmodule
