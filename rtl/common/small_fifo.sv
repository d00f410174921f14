// First-in first-out queue for few words: a word can leave in the cycle after it came.
//
// The memory is read without a register (flip-flops or distributed RAM); stream_fifo is for block RAM.
// NeverFull says that the words around the queue are counted, so that ready_o may be left open. Simulation stops and a
// proof fails where a word comes that finds no room; synthesis removes the check.
module small_fifo #(
  parameter  int unsigned Width = 8,
  parameter  int unsigned Depth = 4,  // a power of two, at least 2
  parameter  bit          NeverFull = 1'b0,
  localparam int unsigned CountWidth = $clog2(Depth + 1)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  valid_i,
  output logic                  ready_o,
  input  logic [     Width-1:0] data_i,
  output logic                  valid_o,
  input  logic                  ready_i,
  output logic [     Width-1:0] data_o,
  output logic [CountWidth-1:0] count_o
);
  localparam int unsigned AddrWidth = $clog2(Depth);

  logic [Width-1:0] mem[Depth];
  logic [AddrWidth-1:0] head_q, tail_q;
  logic [CountWidth-1:0] count_q;
  logic put, get;

  assign ready_o = count_q != CountWidth'(Depth);
  assign valid_o = count_q != '0;
  assign put     = valid_i && ready_o;
  assign get     = valid_o && ready_i;
  assign data_o  = mem[head_q];
  assign count_o = count_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      head_q  <= '0;
      tail_q  <= '0;
      count_q <= '0;
    end else begin
      if (put) tail_q <= tail_q + 1'b1;
      if (get) head_q <= head_q + 1'b1;
      count_q <= count_q + CountWidth'(put) - CountWidth'(get);
    end
  end

  always_ff @(posedge clk_i) if (put) mem[tail_q] <= data_i;

  if (NeverFull) begin : g_never_full
    logic checks_q = 1'b0;  // from the first reset on
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        checks_q <= 1'b1;
      end else if (checks_q) begin
        assert (!valid_i || ready_o)
        else $error("a word is lost: the queue is full that is never full");
      end
    end
  end
endmodule
