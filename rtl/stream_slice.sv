// A register between two handshakes that cuts both ways: no path leads from one side's valid, data or ready to the other's.
module stream_slice #(
  parameter int unsigned Width = 32
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             valid_i,
  output logic             ready_o,
  input  logic [Width-1:0] data_i,
  output logic             valid_o,
  input  logic             ready_i,
  output logic [Width-1:0] data_o
);
  // What came when the output was taken.
  logic spare_valid_q, move;
  logic [Width-1:0] spare_q;

  assign ready_o = !spare_valid_q;
  assign move    = !valid_o || ready_i;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      valid_o       <= 1'b0;
      spare_valid_q <= 1'b0;
    end else if (move) begin
      valid_o       <= valid_i || spare_valid_q;
      spare_valid_q <= 1'b0;
    end else if (valid_i) begin
      spare_valid_q <= 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (move) data_o <= spare_valid_q ? spare_q : data_i;
    if (ready_o) spare_q <= data_i;
  end
endmodule
