// The turns of a ring of registers: a block enters, passes the ring's stages some times, and leaves.
//
// turn_o[i] says whose state is in front of stage i. As many blocks take turns as the ring has stages. A block enters into
// stage 0 where none goes on. One of fewer passes waits as long as it would overtake another.
module ace_ring
  import ace_pkg::*;
#(
  parameter int unsigned Stages = 2,
  parameter int unsigned Passes[3] = '{10, 12, 14}  // by key length
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        clear_i,        // drops all
  input  logic        valid_i,
  output logic        ready_o,
  input  block_kind_t kind_i,
  output turn_t       turn_o[Stages],
  output logic        leave_o         // out of the last stage
);
  function automatic logic [4:0] last_pass(key_bits_t bits);
    return 5'((bits == 2'd0 ? Passes[0] : bits == 2'd1 ? Passes[1] : Passes[2]) - 1);
  endfunction

  turn_t turn_q[Stages];
  turn_t back, first;
  logic enters, goes_on, in_order;
  assign back    = turn_q[Stages-1];
  assign goes_on = back.valid && !back.last;
  assign leave_o = back.valid && back.last;
  assign ready_o = !goes_on && in_order;
  assign enters  = valid_i && ready_o;
  assign turn_o  = turn_q;

  always_comb begin
    first = back;
    if (goes_on) begin
      first.pass = back.pass + 1'b1;
      first.last = back.pass + 1'b1 == last_pass(back.kind.bits);
    end else begin
      first = '{valid: enters, kind: kind_i, last: last_pass(kind_i.bits) == '0, pass: '0};
    end
  end

  for (genvar i = 0; i < Stages; i++) begin : g_stage
    turn_t former;
    if (i == 0) begin : g_first
      assign former = first;
    end else begin : g_next
      assign former = turn_q[i-1];
    end
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) turn_q[i] <= '0;
      else turn_q[i] <= clear_i ? '0 : former;
    end
  end

  if (Passes[0] == Passes[1] && Passes[1] == Passes[2]) begin : g_same
    assign in_order = 1'b1;
  end else begin : g_order
    // Cycles until the last one that entered leaves, and one more.
    localparam int unsigned Width = $clog2(Passes[2] * Stages + 1);
    logic [Width-1:0] remaining_q, takes;
    assign takes    = Width'(Stages * (32'(last_pass(kind_i.bits)) + 1));
    assign in_order = remaining_q <= takes;
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) remaining_q <= '0;
      else if (clear_i) remaining_q <= '0;
      else if (enters) remaining_q <= takes;
      else if (remaining_q != '0) remaining_q <= remaining_q - 1'b1;
    end
  end
endmodule
