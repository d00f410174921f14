// Reads the trailer of bodies off a stream that it does not hold up, and checks the padding before it: up to 255 bytes,
// 1, 2, 3, … (RFC 4303, 2.4). The answer is there three cycles after the last beat.
//
// In such padding a byte less its place is the same all along: what is counted is how many bytes up to the last of the
// padding have that in common.
module esp_trailer (
  input  logic              clk_i,
  input  logic              rst_ni,
  input  logic              valid_i,
  input  esp_pkg::beat_t    beat_i,   // a multiple of 4 bytes
  output logic              done_o,
  output esp_pkg::trailer_t trailer_o
);
  import esp_pkg::*;
  localparam int unsigned RunWidth = 9;

  // First stage: bytes less their places.
  logic [15:0][7:0] bytes, less_q;
  logic [11:0] index_q;
  logic one_valid_q, one_last_q, one_first_q;
  logic [1:0] one_words_q, words;  // words of the beat, less one
  logic [11:0] one_index_q;
  logic [23:0] tail_q;  // the last bytes
  assign bytes = beat_i.data;
  assign words = {beat_i.keep[8], beat_i.keep[12] || (beat_i.keep[4] && !beat_i.keep[8])};

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      index_q     <= '0;
      one_valid_q <= 1'b0;
    end else begin
      one_valid_q <= valid_i;
      if (valid_i) index_q <= beat_i.last ? '0 : index_q + 1'b1;
    end
  end
  always_ff @(posedge clk_i) begin
    for (int unsigned b = 0; b < 16; b++) less_q[b] <= bytes[b] - {index_q[3:0], 4'(b)};
    one_last_q  <= beat_i.last;
    one_first_q <= index_q == '0;
    one_words_q <= words;
    one_index_q <= index_q;
    tail_q      <= beat_i.data[32*words+8+:24];
  end

  // Second stage: how many from the last one of this beat backwards are the same.
  logic [3:0] at;
  logic [7:0] common_d, common_q, shown_q, next_header_q, before_q;
  logic [15:0] same, missing;
  logic [4:0] count_d, count_q;
  logic two_valid_q, two_last_q, two_first_q;
  logic [15:0] length_q;
  logic [3:0] two_at_q;
  // The last byte of padding is the third from the end.
  assign at       = one_last_q ? {one_words_q, 2'd1} : 4'd15;
  assign common_d = less_q[at];
  always_comb begin
    for (int unsigned b = 0; b < 16; b++) same[b] = less_q[b] == common_d;
    // Seen from that byte, the nearest that differs.
    missing = ~same << (4'd15 - at);
    count_d = 5'(at) + 5'd1;
    for (int unsigned b = 0; b < 16; b++) if (missing[b]) count_d = 5'd15 - 5'(b);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) two_valid_q <= 1'b0;
    else two_valid_q <= one_valid_q;
  end
  always_ff @(posedge clk_i) begin
    common_q      <= common_d;
    count_q       <= count_d;
    two_last_q    <= one_last_q;
    two_first_q   <= one_first_q;
    before_q      <= tail_q[7:0];
    shown_q       <= tail_q[15:8];
    next_header_q <= tail_q[23:16];
    length_q      <= {one_index_q, one_words_q, 2'b0} + 16'd4;
    two_at_q      <= at;
  end

  // Third stage: the run goes on where a whole beat is the same.
  logic [RunWidth-1:0] run_q, run_d;
  logic [7:0] run_common_q;
  always_comb begin
    run_d = RunWidth'(count_q);
    if (!two_first_q && count_q == 5'(two_at_q) + 5'd1 && run_common_q == common_q) begin
      run_d = run_q[RunWidth-1] ? run_q : run_q + RunWidth'(count_q);
    end
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) done_o <= 1'b0;
    else done_o <= two_valid_q && two_last_q;
  end
  always_ff @(posedge clk_i) begin
    if (two_valid_q) begin
      run_q        <= run_d;
      run_common_q <= common_q;
      trailer_o.sound       <= shown_q == '0 || (before_q == shown_q && run_d >= RunWidth'(shown_q));
      trailer_o.next_header <= next_header_q;
      trailer_o.payload     <= length_q - 16'd2 - 16'(shown_q);
    end
  end
endmodule
