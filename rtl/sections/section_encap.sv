// A unit of the encapsulation section: tunnel mode with an IPv4 outer header (RFC 4303, 3.1.2). The packet becomes the
// lead of two beats (see sections_pkg), for AES-CBC a block from which the cipher makes the IV, the inner packet with
// its TTL one less, padding and trailer.
//
// The block is the SPI and the sequence number: encrypted under the same key it gives an IV that cannot be foreseen
// (SP 800-38A, appendix C). With a chaining value of zero the cipher treats it like any other block.
module section_encap
  import sections_pkg::*;
(
  input  logic           clk_i,
  input  logic           rst_ni,
  input  logic           s_valid_i,
  output logic           s_ready_o,
  input  esp_pkg::beat_t s_beat_i,
  input  sad_head_t      s_user_i,
  output logic           m_valid_o,
  input  logic           m_ready_i,
  output esp_pkg::beat_t m_beat_o,
  output encap_head_t    m_user_o
);
  localparam logic [7:0] Version4 = 8'h45, HopLimit = 8'd64, Esp = 8'd50;
  localparam logic [3:0] Ipv4 = 4'd4;
  localparam logic [15:0] IcvBytes = 16'd12, OuterBytes = 16'd28;

  // Addresses takes the first beat in front, Pass lets the others by, those of the key only where there is a cipher.
  typedef enum logic [3:0] {Addresses, Pass, Prepare, Sum, Check, Lead0, Lead1, Nonce, Body, Extra} state_e;
  state_e state_q;
  logic first_q;       // of the inner packet's beats
  logic [2:0] left_q;  // of the beats in front
  logic [31:0] spi_q, sequence_q, source_q, destination_q;
  logic key, past;
  assign key  = left_q >= 3'(StateBeats);
  assign past = state_q == Pass && !(key && s_user_i.sa.cipher == UnitPass);
  always_ff @(posedge clk_i) begin
    if (state_q == Addresses) {destination_q, source_q, sequence_q, spi_q} <= s_beat_i.data;
  end

  // Of the packet that waits or goes, from Sum on.
  logic [15:0] bytes, total_q;
  logic [3:0] padding, padding_q;
  logic aes, des, aes_q, extra;
  logic [4:0] used, used_q;  // bytes of the inner packet in its last beat, 1 to 16
  logic [5:0] tail_q;        // and with padding and trailer behind
  assign bytes   = s_user_i.bytes;
  assign aes     = s_user_i.sa.cipher == UnitMain || s_user_i.sa.cipher == UnitPriority;
  assign des     = s_user_i.sa.cipher == UnitDes;
  // To a multiple of the cipher's block; without a cipher to one of 4.
  assign padding = (4'd14 - bytes[3:0]) & (aes ? 4'd15 : des ? 4'd7 : 4'd3);
  assign used    = bytes[3:0] == '0 ? 5'd16 : 5'(bytes[3:0]);
  assign extra   = tail_q > 6'd16;
  always_ff @(posedge clk_i) begin
    if (state_q == Prepare) begin
      padding_q <= padding;
      aes_q     <= aes;
      used_q    <= used;
      tail_q    <= 6'(used) + 6'(padding) + 6'd2;
      total_q   <= bytes + (OuterBytes + IcvBytes + 16'd2 + (aes ? 16'd16 : 16'd0)) + 16'(padding);
    end
  end

  // What follows the inner packet: 1, 2, 3, ..., how many they are, and the next header (RFC 4303, 2.4 to 2.6). Of the
  // inner packet's last beat and of the one that may be behind; no byte has more than four bits.
  logic [31:0][3:0] trailer_q;
  logic [15:0] inner_keep_q, last_keep_q;
  logic extra_q;
  always_ff @(posedge clk_i) begin
    if (state_q == Sum) begin
      for (int unsigned i = 0; i < 32; i++) begin
        if (6'(i) + 6'd1 == tail_q) trailer_q[i] <= Ipv4;
        else if (6'(i) + 6'd2 == tail_q) trailer_q[i] <= padding_q;
        else trailer_q[i] <= 4'(i) + 4'd1 - used_q[3:0];
      end
      inner_keep_q <= 16'hffff >> (5'd16 - used_q);
      last_keep_q  <= 16'hffff >> (extra ? 6'd32 - tail_q : 6'd16 - tail_q);
      extra_q      <= extra;
    end
  end

  // The outer header: DSCP, ECN and DF are the inner packet's (RFC 4301, 5.1.2.1; RFC 6040).
  logic [127:0] inner;
  logic [15:0] id, flags, checksum_q, inner_inverse, inner_sum, inner_checksum_q;
  logic [3:0][16:0] pairs_q;
  logic [19:0] sum_q;
  assign inner = s_beat_i.data;
  assign id    = sequence_q[15:0];
  assign flags = {1'b0, inner[54], 14'd0};
  // The inner header's checksum with the TTL one less (RFC 1624, equation 3).
  assign inner_inverse  = ~swap16(inner[95:80]);
  assign inner_sum      = fold(20'(inner_inverse) + 20'hfeff);
  // Prepare, Sum and Check: a step each. The inner packet's first beat waits meanwhile.
  always_ff @(posedge clk_i) begin
    pairs_q[0] <= 17'({Version4, inner[15:8]}) + 17'(id);
    pairs_q[1] <= 17'(flags) + 17'({HopLimit, Esp});
    pairs_q[2] <= 17'(source_q[31:16]) + 17'(source_q[15:0]);
    pairs_q[3] <= 17'(destination_q[31:16]) + 17'(destination_q[15:0]);
    sum_q      <= (20'(pairs_q[0]) + 20'(pairs_q[1])) + (20'(pairs_q[2]) + 20'(pairs_q[3])) + 20'(total_q);
    checksum_q <= ~fold(sum_q);
    if (state_q == Sum) inner_checksum_q <= ~inner_sum;
  end

  always_comb begin
    m_beat_o      = s_beat_i;
    m_beat_o.last = 1'b0;
    m_beat_o.keep = '1;
    unique case (state_q)
      Pass: m_beat_o.data = s_beat_i.data;
      Lead0: m_beat_o.data = {
          swap16(checksum_q), Esp, HopLimit, swap16(flags), swap16(id), swap16(total_q), inner[15:8], Version4, 32'd0
        };
      Lead1: m_beat_o.data = {
          swap32(sequence_q), swap32(spi_q),
          swap32(destination_q), swap32(source_q)
        };
      Nonce: m_beat_o.data = {swap32(sequence_q), 64'd0, swap32(spi_q)};
      Extra: begin
        for (int unsigned i = 0; i < 16; i++) m_beat_o.data[8*i+:8] = 8'(trailer_q[16+i]);
        m_beat_o.keep = last_keep_q;
        m_beat_o.last = 1'b1;
      end
      Body: begin
        if (first_q) begin
          m_beat_o.data[71:64] = inner[71:64] - 8'd1;
          m_beat_o.data[95:80] = swap16(inner_checksum_q);
        end
        if (s_beat_i.last) begin
          for (int unsigned i = 0; i < 16; i++) if (!inner_keep_q[i]) m_beat_o.data[8*i+:8] = 8'(trailer_q[i]);
          if (!extra_q) m_beat_o.keep = last_keep_q;
          m_beat_o.last = !extra_q;
        end
      end
      Addresses, Prepare, Sum, Check: ;
    endcase
  end

  assign m_valid_o = state_q == Extra || ((past || state_q inside {Lead0, Lead1, Nonce, Body}) && s_valid_i);
  // The inner packet's last beat stays until the trailer has gone.
  assign s_ready_o = state_q == Addresses || (state_q == Pass && !past) ||
      (m_ready_i && (past || state_q == Extra || (state_q == Body && !(s_beat_i.last && extra_q))));
  assign m_user_o  = '{port: s_user_i.port, cipher: s_user_i.sa.cipher, auth: s_user_i.sa.auth, wide: s_user_i.sa.wide};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Addresses;
      first_q <= 1'b1;
      left_q  <= '0;
    end else begin
      if (s_valid_i && s_ready_o && state_q inside {Body, Extra}) first_q <= s_beat_i.last;
      if (state_q == Addresses) left_q <= 3'(KeyBeats + StateBeats - 1);
      else if (state_q == Pass && s_valid_i && s_ready_o) left_q <= left_q - 1'b1;
      unique case (state_q)
        Addresses: if (s_valid_i) state_q <= Pass;
        Pass: if (s_valid_i && s_ready_o && left_q == '0) state_q <= Prepare;
        Prepare: if (s_valid_i) state_q <= Sum;
        Sum: state_q <= Check;
        Check: state_q <= Lead0;
        Lead0: if (m_ready_i) state_q <= Lead1;
        Lead1: if (m_ready_i) state_q <= aes_q ? Nonce : Body;
        Nonce: if (m_ready_i) state_q <= Body;
        Body: if (s_valid_i && m_ready_i && s_beat_i.last) state_q <= extra_q ? Extra : Addresses;
        Extra: if (m_ready_i) state_q <= Addresses;
      endcase
    end
  end

  logic unused;
  assign unused = &{s_user_i.sa.encap, s_beat_i.keep, inner};
endmodule
