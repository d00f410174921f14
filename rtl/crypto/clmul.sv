// Carry-less product of two Width bit numbers, combinational: Karatsuba down to Leaf bits.
module clmul #(
  parameter int unsigned Width = 32,
  parameter int unsigned Leaf  = 32
) (
  input  logic [  Width-1:0] a_i,
  input  logic [  Width-1:0] b_i,
  output logic [2*Width-2:0] product_o
);
  if (Width <= Leaf) begin : g_rows
    always_comb begin
      product_o = '0;
      for (int unsigned i = 0; i < Width; i++) begin
        product_o ^= ((2 * Width - 1)'(a_i) << i) & {(2 * Width - 1) {b_i[i]}};
      end
    end
  end else begin : g_halves
    localparam int unsigned Half = Width / 2;
    logic [2*Half-2:0] low, high, sum, middle;
    clmul #(
      .Width(Half),
      .Leaf (Leaf)
    ) u_low (
      .a_i(a_i[Half-1:0]),
      .b_i(b_i[Half-1:0]),
      .product_o(low)
    );
    clmul #(
      .Width(Half),
      .Leaf (Leaf)
    ) u_high (
      .a_i(a_i[Width-1:Half]),
      .b_i(b_i[Width-1:Half]),
      .product_o(high)
    );
    clmul #(
      .Width(Half),
      .Leaf (Leaf)
    ) u_sum (
      .a_i(a_i[Half-1:0] ^ a_i[Width-1:Half]),
      .b_i(b_i[Half-1:0] ^ b_i[Width-1:Half]),
      .product_o(sum)
    );
    assign middle    = sum ^ high ^ low;
    assign product_o = {high, 1'b0, low} ^ {{Half{1'b0}}, middle, {Half{1'b0}}};
  end
endmodule
