// GHASH (SP 800-38D, 6.4), one block a cycle.
//
// The multiplier is Stages cycles long, so the blocks of a message go round in as many lanes, each Horner's scheme with H^Stages;
// the last Stages blocks are multiplied by H^(blocks left + 1) and the sum of their products is the hash.
//
// Within a message the gaps between valid blocks must be whole multiples of Stages cycles: in a gap every lane goes round once
// with the factor 1, so each block still meets its own lane. Between messages any gap will do.
//
// load_i takes the powers of H for the message whose first block comes in a later cycle, not before the last block of the
// message before. hash_o is valid Stages + 2 cycles after the last block.
module ghash
  import esp_pkg::*;
#(
  parameter int unsigned Stages = 3,  // 2 to 4
  parameter int unsigned Leaf = 32,
  localparam int unsigned LeftWidth = $clog2(Stages + 1)
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 load_i,
  input  block_t               powers_i[Stages],  // H, H^2, ..
  input  logic                 valid_i,
  input  logic                 first_i,
  input  logic [LeftWidth-1:0] left_i,            // blocks after this one, Stages if more
  input  block_t               block_i,
  output logic                 valid_o,
  output block_t               hash_o
);
  localparam logic [LeftWidth-1:0] Full = LeftWidth'(Stages);
  localparam block_t One = {1'b1, 127'b0};

  block_t powers_q[Stages];
  always_ff @(posedge clk_i) if (load_i) powers_q <= powers_i;

  typedef struct packed {
    logic tail;   // one of the last Stages blocks
    logic start;  // the first of these
    logic last;
  } mark_t;

  mark_t mark_d, mark_q;
  block_t block_q, factor_d, factor_q;
  assign mark_d.tail  = valid_i && left_i < Full;
  assign mark_d.start = left_i == Full - 1'b1 || first_i;
  assign mark_d.last  = left_i == '0;

  always_comb begin
    factor_d = powers_q[Stages-1];
    for (int unsigned i = 0; i < Stages - 1; i++) if (left_i == LeftWidth'(i)) factor_d = powers_q[i];
    if (!valid_i) factor_d = One;
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) mark_q <= '0;
    else mark_q <= mark_d;
  end

  always_ff @(posedge clk_i) begin
    block_q  <= block_i & {128{valid_i}};
    factor_q <= factor_d;
  end

  // What comes out of the multiplier belongs to this message from Stages cycles after its first block.
  logic [LeftWidth-1:0] age_q;
  logic live_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      age_q  <= '0;
      live_q <= 1'b0;
    end else if (valid_i && first_i) begin
      age_q  <= Full;
      live_q <= 1'b0;
    end else begin
      if (age_q != '0) age_q <= age_q - 1'b1;
      live_q <= age_q <= LeftWidth'(1);
    end
  end

  block_t product;
  ghash_mul #(
    .Stages(Stages),
    .Leaf  (Leaf)
  ) u_mul (
    .clk_i,
    .a_i(block_q ^ (product & {128{live_q}})),
    .b_i(factor_q),
    .product_o(product)
  );

  mark_t [Stages-1:0] marks_q;
  mark_t mark;
  assign mark = marks_q[Stages-1];
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      marks_q <= '0;
      valid_o <= 1'b0;
    end else begin
      marks_q <= ($bits(marks_q))'({marks_q, mark_q});
      valid_o <= mark.tail && mark.last;
    end
  end

  always_ff @(posedge clk_i) if (mark.tail) hash_o <= product ^ (mark.start ? '0 : hash_o);
endmodule
