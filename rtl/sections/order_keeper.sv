// Keeps the order of packets through the parallel units between two packet switches.
//
// Units may finish in any order. The switch in front says which unit got each packet (its sent stream); the one behind
// registers a unit's packet only when it is that unit's turn. Units have classes: packets of one class keep their order,
// those of different classes may overtake each other, so that priority traffic need not wait. Every packet that goes
// into a unit must come out of it.
module order_keeper #(
  parameter  int unsigned Units     = 4,
  parameter  int unsigned Classes   = 2,
  parameter  int unsigned Depth     = 64,  // packets of a class between the two switches, a power of two
  localparam int unsigned UnitWidth = Units > 1 ? $clog2(Units) : 1,
  localparam int unsigned ClassWidth = Classes > 1 ? $clog2(Classes) : 1
) (
  input  logic                              clk_i,
  input  logic                              rst_ni,
  input  logic [Units-1:0][ClassWidth-1:0]  class_i,       // must not change
  input  logic                              sent_valid_i,  // may still be so in the cycle after ready fell
  input  logic [UnitWidth-1:0]              sent_unit_i,
  output logic                              sent_ready_o,  // there is room for two in every class
  output logic [Units-1:0]                  turn_o,
  input  logic [Units-1:0]                  taken_i        // of those whose turn it is, one at most
);
  logic [Classes-1:0] put, ready, valid, get;
  logic [Classes-1:0][UnitWidth-1:0] unit;

  assign sent_ready_o = &ready;

  always_comb
    for (int unsigned c = 0; c < Classes; c++)
      put[c] = sent_valid_i && class_i[sent_unit_i] == ClassWidth'(c);
  always_comb
    for (int unsigned u = 0; u < Units; u++) turn_o[u] = valid[class_i[u]] && unit[class_i[u]] == UnitWidth'(u);
  always_comb begin
    get = '0;
    for (int unsigned u = 0; u < Units; u++) if (taken_i[u]) get[class_i[u]] = 1'b1;
  end

  for (genvar c = 0; c < Classes; c++) begin : gen_class
    logic [$clog2(Depth+1)-1:0] count;
    assign ready[c] = count <= ($clog2(Depth + 1))'(Depth - 2);
    small_fifo #(
      .Width(UnitWidth),
      .Depth(Depth),
      .NeverFull(1'b1)
    ) u_order (
      .clk_i,
      .rst_ni,
      .valid_i(put[c]),
      .ready_o(),
      .data_i (sent_unit_i),
      .valid_o(valid[c]),
      .ready_i(get[c]),
      .data_o (unit[c]),
      .count_o(count)
    );
  end
endmodule
