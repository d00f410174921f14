// Four pins for a core of any width: its inputs come from a shift register, its outputs are folded into one bit through
// registers, so that every path that is measured starts and ends at a register.
module shell_pins #(
  parameter int unsigned InWidth  = 256,
  parameter int unsigned OutWidth = 256
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                in_i,
  output logic                out_o,
  output logic                core_rst_no,
  output logic [ InWidth-1:0] core_o,
  input  logic [OutWidth-1:0] core_i
);
  logic reset_q, core_reset_q;
  // The part's flip-flops are reset by a high signal: no inverter between this register and them.
  assign core_rst_no = !core_reset_q;
  always_ff @(posedge clk_i) begin
    reset_q      <= !rst_ni;
    core_reset_q <= reset_q;
    core_o       <= {core_o[InWidth-2:0], in_i};
  end

  // 16 bits into one, twice, then the rest.
  localparam int unsigned First = (OutWidth + 15) / 16;
  localparam int unsigned Second = (First + 15) / 16;
  logic [OutWidth-1:0] core_q;
  logic [16*First-1:0] wide;
  logic [First-1:0] first_q;
  logic [16*Second-1:0] narrow;
  logic [Second-1:0] second_q;
  assign wide   = (16 * First)'(core_q);
  assign narrow = (16 * Second)'(first_q);
  always_ff @(posedge clk_i) begin
    core_q <= core_i;
    for (int unsigned i = 0; i < First; i++) first_q[i] <= ^wide[16*i+:16];
    for (int unsigned i = 0; i < Second; i++) second_q[i] <= ^narrow[16*i+:16];
    out_o <= ^second_q;
  end
endmodule
