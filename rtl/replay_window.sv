// Whether a sequence number is new to an SA, and its window with that number in it (RFC 4303, 3.4.3). Two cycles.
//
// Bit i of the window says that number top - i has come. Number 0 is never sent.
module replay_window #(
  parameter int unsigned Window = 64,  // a power of two
  parameter int unsigned Width  = 64   // of sequence numbers
) (
  input  logic              clk_i,
  input  logic              off_i,     // without a check
  // Held for two cycles.
  input  logic [ Width-1:0] top_i,
  input  logic [Window-1:0] seen_i,
  input  logic [ Width-1:0] number_i,
  // From then on:
  output logic              fresh_o,
  output logic [ Width-1:0] top_o,
  output logic [Window-1:0] seen_o
);
  localparam int unsigned IndexWidth = $clog2(Window);
  logic newer_q, far_q, zero_q;
  logic [IndexWidth-1:0] distance_q;
  logic [Width:0] ahead;
  logic [Width-1:0] distance;

  assign ahead    = {1'b0, top_i} - {1'b0, number_i};  // negative: the number is ahead of the top
  assign distance = ahead[Width] ? number_i - top_i : ahead[Width-1:0];

  logic [Window-1:0] bit_of;
  assign bit_of = Window'(1) << distance_q;

  always_ff @(posedge clk_i) begin
    newer_q    <= ahead[Width];
    distance_q <= distance[IndexWidth-1:0];
    far_q      <= distance >= Width'(Window);
    zero_q     <= number_i == '0;

    fresh_o <= !zero_q && (newer_q || off_i || (!far_q && (seen_i & bit_of) == '0));
    top_o   <= newer_q ? number_i : top_i;
    if (newer_q) seen_o <= far_q ? Window'(1) : (seen_i << distance_q) | Window'(1);
    else seen_o <= far_q ? seen_i : seen_i | bit_of;
  end
endmodule
