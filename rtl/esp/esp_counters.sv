// What becomes of the packets of a lane: how many left, how many were dropped for each reason, how many bytes left.
//
// The memory is cleared in the 32 cycles after reset; packets that end before then are not counted. (Lanes are off then.)
module esp_counters
  import esp_pkg::*;
(
  input  logic        clk_i,
  input  logic        rst_ni,
  // A packet has ended. The bytes count if it left.
  input  logic        valid_i,
  input  drop_e       reason_i,
  input  logic [15:0] bytes_i,
  // A word: 0 to 31 packets by reason, 32 and 33 bytes. The data comes a cycle later.
  input  logic        read_i,
  input  logic [ 5:0] address_i,
  output logic [31:0] data_o
);
  logic [31:0] mem[32];
  logic [63:0] bytes_q;
  logic [31:0] high_q;
  logic [ 5:0] cleared_q;  // its top bit: all of it
  logic [ 4:0] at;

  assign at = cleared_q[5] ? reason_i : cleared_q[4:0];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      bytes_q   <= '0;
      cleared_q <= '0;
    end else begin
      if (valid_i && reason_i == DropNone) bytes_q <= bytes_q + 64'(bytes_i);
      if (!cleared_q[5]) cleared_q <= cleared_q + 1'b1;
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i || !cleared_q[5]) mem[at] <= cleared_q[5] ? mem[at] + 1'b1 : '0;
    // So that the two halves are of one moment.
    if (read_i && address_i == 6'd32) high_q <= bytes_q[63:32];
    unique case (address_i)
      6'd32:   data_o <= bytes_q[31:0];
      6'd33:   data_o <= high_q;
      default: data_o <= mem[address_i[4:0]];
    endcase
  end
endmodule
