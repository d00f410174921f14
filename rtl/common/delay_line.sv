// A fixed delay of Depth cycles in memory.
module delay_line #(
  parameter int unsigned Width = 128,
  parameter int unsigned Depth = 16  // 3 or more
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic [Width-1:0] data_i,
  output logic [Width-1:0] data_o
);
  localparam int unsigned AddrWidth = $clog2(Depth);

  // A word is never read in the cycle in which it is written.
  (* no_rw_check *)
  logic [Width-1:0] mem[2**AddrWidth];
  logic [AddrWidth-1:0] head_q;
  logic [Width-1:0] read_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) head_q <= '0;
    else head_q <= head_q + 1'b1;
  end

  always_ff @(posedge clk_i) begin
    mem[head_q] <= data_i;
    read_q <= mem[AddrWidth'(head_q-AddrWidth'(Depth-2))];
    data_o <= read_q;
  end
endmodule
