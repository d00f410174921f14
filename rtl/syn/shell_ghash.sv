// ghash on four pins: its powers are an array, which a shell that is made does not know.
module shell_ghash
  import esp_pkg::*;
#(
  parameter int unsigned Stages = 4,
  parameter int unsigned Leaf   = 8
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic in_i,
  output logic out_o
);
  typedef struct packed {
    logic                        load;
    block_t [Stages-1:0]         powers;
    logic                        valid;
    logic                        first;
    logic [$clog2(Stages+1)-1:0] left;
    block_t                      block;
  } in_t;

  in_t in;
  block_t hash;
  block_t powers[Stages];
  logic valid, reset_n;
  for (genvar i = 0; i < Stages; i++) begin : g_power
    assign powers[i] = in.powers[i];
  end
  shell_pins #(
    .InWidth ($bits(in_t)),
    .OutWidth(129)
  ) u_pins (
    .clk_i,
    .rst_ni,
    .in_i,
    .out_o,
    .core_rst_no(reset_n),
    .core_o(in),
    .core_i({valid, hash})
  );
  ghash #(
    .Stages(Stages),
    .Leaf(Leaf)
  ) u_core (
    .clk_i,
    .rst_ni(reset_n),
    .load_i(in.load),
    .powers_i(powers),
    .valid_i(in.valid),
    .first_i(in.first),
    .left_i(in.left),
    .block_i(in.block),
    .valid_o(valid),
    .hash_o(hash)
  );
endmodule
