// First-in first-out queue between two handshakes, Depth words in memory.
//
// A word is taken when valid and ready are both high. The output is registered: a word can leave two cycles after it
// came, and from then on one leaves each cycle. ready_o does not depend on ready_i. With Extra there is another register
// behind the memory's own, whose delay is long: a cycle later and for one word more.
// NeverFull says that the words around the queue are counted, so that ready_o may be left open. Simulation stops and a
// proof fails where a word comes that finds no room; synthesis removes the check.
module stream_fifo #(
  parameter int unsigned Width = 32,
  parameter int unsigned Depth = 16,  // a power of two
  parameter bit Extra = 1'b0,
  parameter bit Block = 1'b0,  // block RAM though there are few words: for wide ones, which else take much wiring
  parameter bit NeverFull = 1'b0,
  localparam int unsigned CountWidth = $clog2(Depth + (Extra ? 3 : 2))
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  valid_i,
  output logic                  ready_o,
  input  logic [     Width-1:0] data_i,
  output logic                  valid_o,
  input  logic                  ready_i,
  output logic [     Width-1:0] data_o,
  output logic [CountWidth-1:0] count_o  // words inside, the one at the output among them
);
  localparam int unsigned AddrWidth = $clog2(Depth);

  // A word is never read in the cycle in which it is written.
  (* no_rw_check, ram_style = Block ? "block" : "auto" *)
  logic [Width-1:0] mem[Depth];
  // One bit more than an address tells full from empty.
  logic [AddrWidth:0] head_q, tail_q, stored;
  // Of stored, so that what depends on them need not wait for it.
  logic full_q, some_q;
  logic put, get, free;
  // The register behind the memory; without Extra it is the output.
  logic read_valid_q;
  logic [Width-1:0] read_q;

  assign stored  = tail_q - head_q;
  assign ready_o = !full_q;
  assign put     = valid_i && ready_o;
  assign get     = some_q && (!read_valid_q || free);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      head_q       <= '0;
      tail_q       <= '0;
      read_valid_q <= 1'b0;
      full_q       <= 1'b0;
      some_q       <= 1'b0;
    end else begin
      if (put) tail_q <= tail_q + 1'b1;
      if (get) head_q <= head_q + 1'b1;
      read_valid_q <= get || (read_valid_q && !free);
      full_q       <= !get && (stored[AddrWidth] || (put && &stored[AddrWidth-1:0]));
      some_q       <= put || |stored[AddrWidth:1] || (stored[0] && !get);
    end
  end

  always_ff @(posedge clk_i) begin
    if (put) mem[tail_q[AddrWidth-1:0]] <= data_i;
    if (get) read_q <= mem[head_q[AddrWidth-1:0]];
  end

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

  if (Extra) begin : g_extra
    assign free    = !valid_o || ready_i;
    assign count_o = CountWidth'(stored) + CountWidth'(read_valid_q) + CountWidth'(valid_o);
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) valid_o <= 1'b0;
      else if (free) valid_o <= read_valid_q;
    end
    always_ff @(posedge clk_i) if (free) data_o <= read_q;
  end else begin : g_plain
    assign free    = ready_i;
    assign count_o = CountWidth'(stored) + CountWidth'(read_valid_q);
    assign valid_o = read_valid_q;
    assign data_o  = read_q;
  end
endmodule
