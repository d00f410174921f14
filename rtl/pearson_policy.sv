// Exact-match policy table: the Pearson hash of the selectors picks a bucket of four entries, the one with these very
// selectors counts. No such entry: discard (RFC 4301, 4.4.1).
//
// A byte is hashed a cycle; the answer comes 16 cycles after start_i. After reset the table is emptied first, for 256
// cycles, and ready_o is low.
module pearson_policy
  import sections_pkg::*;
#(
  localparam int unsigned Buckets = 256,
  localparam int unsigned Ways = 4
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,
  output logic                    ready_o,         // start_i may come
  input  logic                    start_i,
  input  selector_t               selector_i,
  output logic                    done_o,          // policy_o counts, in this cycle only
  output policy_t                 policy_o,
  input  logic                    write_i,         // not while ready_o has not been high yet
  input  logic [             7:0] write_bucket_i,
  input  logic [$clog2(Ways)-1:0] write_way_i,
  input  policy_t                 write_entry_i
);
  localparam int unsigned Bytes = $bits(selector_t) / 8;
  localparam logic [3:0] Read = 4'(Bytes);

  selector_t selector_q;
  logic [Bytes*8-1:0] rest_q;
  logic [7:0] hash_q;
  logic [3:0] step_q;
  logic busy_q, read_q, compared_q;

  // Empties the table.
  logic [8:0] wipe_q;
  logic wiping;
  assign wiping  = !wipe_q[8];
  assign ready_o = !wiping && !busy_q;
  assign done_o  = compared_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      wipe_q     <= '0;
      busy_q     <= 1'b0;
      read_q     <= 1'b0;
      compared_q <= 1'b0;
    end else begin
      if (wiping) wipe_q <= wipe_q + 1'b1;
      if (start_i && ready_o) busy_q <= 1'b1;
      else if (compared_q) busy_q <= 1'b0;
      read_q     <= busy_q && step_q == Read;
      compared_q <= read_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i && ready_o) begin
      selector_q <= selector_i;
      rest_q     <= selector_i;
      hash_q     <= '0;
      step_q     <= '0;
    end else if (busy_q && step_q <= Read) begin
      if (step_q != Read) hash_q <= PearsonTable[hash_q^rest_q[7:0]];
      rest_q <= rest_q >> 8;
      step_q <= step_q + 1'b1;
    end
  end

  policy_t [Ways-1:0] entry_q;
  for (genvar w = 0; w < Ways; w++) begin : gen_way
    policy_t mem[Buckets];
    always_ff @(posedge clk_i) begin
      if (wiping || (write_i && write_way_i == 2'(w)))
        mem[wiping ? wipe_q[7:0] : write_bucket_i] <= wiping ? '0 : write_entry_i;
      entry_q[w] <= mem[hash_q];
    end
  end

  policy_t found;
  always_comb begin
    found = '0;
    for (int unsigned w = 0; w < Ways; w++)
      if (entry_q[w].valid && entry_q[w].selector == selector_q) found |= entry_q[w];
  end
  always_ff @(posedge clk_i) policy_o <= found;
endmodule
