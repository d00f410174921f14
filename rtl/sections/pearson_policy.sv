// Exact-match policy table: the Pearson hash of the selectors picks a bucket of four entries, the one with these very
// selectors counts. No such entry: discard (RFC 4301, 4.4.1).
//
// A byte is hashed a cycle and an entry read a cycle; the answer comes 20 cycles after start_i. After reset the table is
// emptied first, for 1,024 cycles, and ready_o is low.
module pearson_policy
  import sections_pkg::*;
#(
  localparam int unsigned Buckets = 256,
  localparam int unsigned Ways = 4,
  localparam int unsigned WayWidth = $clog2(Ways)
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  output logic                ready_o,         // start_i may come
  input  logic                start_i,
  input  selector_t           selector_i,
  output logic                done_o,          // policy_o counts, in this cycle only
  output policy_t             policy_o,
  output logic                write_ready_o,   // write_i may come: the table is empty
  input  logic                write_i,
  input  logic [         7:0] write_bucket_i,
  input  logic [WayWidth-1:0] write_way_i,
  input  policy_t             write_entry_i
);
  localparam int unsigned Bytes = $bits(selector_t) / 8;
  localparam int unsigned AddrWidth = $clog2(Buckets * Ways);

  selector_t selector_q;
  logic [Bytes*8-1:0] rest_q;
  logic [7:0] hash_q;
  logic [3:0] step_q;
  logic [WayWidth-1:0] way_q;
  logic busy_q, reading_q;
  logic [1:0] read_q, last_q;  // an entry, and a bucket's last, is in entry_q two cycles after its address

  // Empties the table.
  logic [AddrWidth:0] wipe_q;
  logic wiping;
  assign wiping        = !wipe_q[AddrWidth];
  assign ready_o       = !wiping && !busy_q;
  assign write_ready_o = !wiping;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      wipe_q    <= '0;
      busy_q    <= 1'b0;
      reading_q <= 1'b0;
      read_q    <= '0;
      last_q    <= '0;
      done_o    <= 1'b0;
    end else begin
      if (wiping) wipe_q <= wipe_q + 1'b1;
      if (start_i && ready_o) busy_q <= 1'b1;
      else if (done_o) busy_q <= 1'b0;
      reading_q <= busy_q && (step_q == 4'(Bytes - 1) || (reading_q && way_q != '1));
      read_q    <= {read_q[0], reading_q};
      last_q    <= {last_q[0], reading_q && way_q == '1};
      done_o    <= last_q[1];
    end
  end

  always_ff @(posedge clk_i) begin
    if (start_i && ready_o) begin
      selector_q <= selector_i;
      rest_q     <= selector_i;
      hash_q     <= '0;
      step_q     <= '0;
      way_q      <= '0;
    end else if (reading_q) begin
      way_q <= way_q + 1'b1;
    end else if (busy_q && step_q != 4'(Bytes)) begin
      hash_q <= PearsonTable[hash_q^rest_q[7:0]];
      rest_q <= rest_q >> 8;
      step_q <= step_q + 1'b1;
    end
  end

  // One memory for all ways, which block RAM has room for. Behind it a register, as its delay is long.
  policy_t mem[Buckets*Ways];
  policy_t out_q, entry_q;
  logic [AddrWidth-1:0] write_addr;
  assign write_addr = wiping ? wipe_q[AddrWidth-1:0] : {write_bucket_i, write_way_i};
  always_ff @(posedge clk_i) begin
    if (wiping || write_i) mem[write_addr] <= wiping ? '0 : write_entry_i;
    out_q   <= mem[{hash_q, way_q}];
    entry_q <= out_q;
    if (start_i && ready_o) policy_o <= '0;
    else if (read_q[1] && entry_q.valid && entry_q.selector == selector_q) policy_o <= entry_q;
  end
endmodule
