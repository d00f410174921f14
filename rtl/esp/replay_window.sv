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
  logic newer_q, ahead_far_q, behind_far_q, far, zero_q;
  logic [IndexWidth-1:0] ahead_q, behind_q, distance;
  logic [Width:0] behind;
  logic [Width-1:0] ahead;

  // Both distances, so that none waits for the other's sign.
  assign behind = {1'b0, top_i} - {1'b0, number_i};  // negative: the number is ahead of the top
  assign ahead  = number_i - top_i;

  logic [Window-1:0] bit_of;
  assign distance = newer_q ? ahead_q : behind_q;
  assign far      = newer_q ? ahead_far_q : behind_far_q;
  assign bit_of   = Window'(1) << distance;

  always_ff @(posedge clk_i) begin
    newer_q      <= behind[Width];
    ahead_q      <= ahead[IndexWidth-1:0];
    behind_q     <= behind[IndexWidth-1:0];
    ahead_far_q  <= |ahead[Width-1:IndexWidth];
    behind_far_q <= |behind[Width-1:IndexWidth];
    zero_q       <= number_i == '0;

    fresh_o <= !zero_q && (newer_q || off_i || (!far && (seen_i & bit_of) == '0));
    top_o   <= newer_q ? number_i : top_i;
    if (newer_q) seen_o <= far ? Window'(1) : (seen_i << distance) | Window'(1);
    else seen_o <= far ? seen_i : seen_i | bit_of;
  end
endmodule
