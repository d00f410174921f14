// Round-robin arbiter: of those that ask, the next one behind the one that was granted last.
//
// The grant is of this cycle and does not depend on take_i. Whoever keeps asking is granted after at most Width - 1 others.
module rr_arbiter #(
  parameter  int unsigned Width = 4,
  localparam int unsigned IndexWidth = Width > 1 ? $clog2(Width) : 1
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic [     Width-1:0] request_i,
  input  logic                  take_i,     // the grant is used, the turn passes on
  output logic [     Width-1:0] grant_o,    // at most one bit
  output logic [IndexWidth-1:0] index_o     // its number; 0 without a grant
);
  // Those behind the last one granted.
  logic [Width-1:0] behind_q, first, past;
  logic some;

  // No sums: carries are long for a few bits.
  assign first = |(request_i & behind_q) ? request_i & behind_q : request_i;
  always_comb begin
    some = 1'b0;
    for (int unsigned i = 0; i < Width; i++) begin
      past[i] = some;
      some |= first[i];
    end
  end
  assign grant_o = first & ~past;

  always_comb begin
    index_o = '0;
    for (int unsigned i = 0; i < Width; i++) if (grant_o[i]) index_o |= IndexWidth'(i);
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) behind_q <= '1;
    else if (take_i && |request_i) behind_q <= past;
  end
endmodule
