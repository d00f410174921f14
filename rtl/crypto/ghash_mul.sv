// The product of two elements of GHASH's field (SP 800-38D, 6.3), one a cycle, Stages cycles long.
//
// Bit 127 is x^0. In this order the carry-less product of the two vectors is the polynomial product read backwards, so nothing is
// turned round. Karatsuba over 64 and 32 bits: nine products, whose operands, results and sum may each have a register:
//   2: products | sum and reduction           3: operands | products | sum and reduction
//   4: operands | products | sum | reduction
module ghash_mul
  import esp_pkg::*;
#(
  parameter int unsigned Stages = 3,
  parameter int unsigned Leaf = 32  // width below which a product is made of rows: 32 simulates fast, 8 is small
) (
  input  logic   clk_i,
  input  block_t a_i,
  input  block_t b_i,
  output block_t product_o
);
  typedef logic [31:0] word_t;
  typedef logic [62:0] wide_t;

  // low, high and their sum, of each half and of the sum of the halves
  function automatic word_t [8:0] split(block_t v);
    logic [63:0] both;
    both = v[127:64] ^ v[63:0];
    return {
      both[63:32] ^ both[31:0], both[63:32], both[31:0],
      v[127:96] ^ v[95:64], v[127:96], v[95:64],
      v[63:32] ^ v[31:0], v[63:32], v[31:0]
    };
  endfunction

  function automatic logic [126:0] join64(wide_t sum, wide_t high, wide_t low);
    return {high, 1'b0, low} ^ {32'b0, sum ^ high ^ low, 32'b0};
  endfunction

  function automatic logic [254:0] join128(wide_t [8:0] p);
    logic [126:0] sum, high, low;
    low  = join64(p[2], p[1], p[0]);
    high = join64(p[5], p[4], p[3]);
    sum  = join64(p[8], p[7], p[6]);
    return {high, 1'b0, low} ^ {64'b0, sum ^ high ^ low, 64'b0};
  endfunction

  // Bits 126:0 stand for x^128 and up; x^128 = x^7 + x^2 + x + 1.
  function automatic block_t reduce(logic [254:0] p);
    logic [133:0] folded;
    folded = {p[126:0], 7'b0} ^ {1'b0, p[126:0], 6'b0} ^ {2'b0, p[126:0], 5'b0} ^ {7'b0, p[126:0]};
    // What the first fold leaves over x^127 is folded once more.
    return p[254:127] ^ folded[133:6] ^ {folded[5:0], 122'b0} ^ {1'b0, folded[5:0], 121'b0} ^
           {2'b0, folded[5:0], 120'b0} ^ {7'b0, folded[5:0], 115'b0};
  endfunction

  word_t [8:0] a, b;
  wide_t [8:0] products, products_q;
  logic [254:0] sum;

  if (Stages >= 3) begin : g_operands
    always_ff @(posedge clk_i) begin
      a <= split(a_i);
      b <= split(b_i);
    end
  end else begin : g_no_operands
    assign a = split(a_i);
    assign b = split(b_i);
  end

  for (genvar i = 0; i < 9; i++) begin : g_product
    clmul #(
      .Width(32),
      .Leaf(Leaf)
    ) u_clmul (
      .a_i(a[i]),
      .b_i(b[i]),
      .product_o(products[i])
    );
  end
  always_ff @(posedge clk_i) products_q <= products;

  if (Stages >= 4) begin : g_sum
    always_ff @(posedge clk_i) sum <= join128(products_q);
  end else begin : g_no_sum
    assign sum = join128(products_q);
  end

  always_ff @(posedge clk_i) product_o <= reduce(sum);
endmodule
