// ace_lane on the pins of a part. Reset is left in step with the clock.
module shell_ace_lane #(
  parameter int unsigned Algorithm = 0,
  parameter bit LongKeys = 1'b0
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        wipe_i,
  input  logic        valid_i,
  output logic        ready_o,
  input  logic [31:0] data_i,
  input  logic        last_i,
  output logic        valid_o,
  input  logic        ready_i,
  output logic [31:0] data_o,
  output logic        last_o,
  output logic        busy_o
);
  logic [1:0] reset_nq;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) reset_nq <= '0;
    else reset_nq <= {reset_nq[0], 1'b1};
  end

  ace_lane #(
    .Algorithm(Algorithm),
    .LongKeys(LongKeys)
  ) u_lane (
    .clk_i,
    .rst_ni(reset_nq[1]),
    .wipe_i,
    .valid_i,
    .ready_o,
    .data_i,
    .last_i,
    .valid_o,
    .ready_i,
    .data_o,
    .last_o,
    .busy_o
  );
endmodule
