// Frames of 32-bit words for ace_lane: each is stored whole and looked at before it counts.
//
// There is room for two frames. A frame is malformed if its first word is none of ace_lane_pkg's, or if it does not end
// with the word that the first one says. Nothing of a malformed frame can be read; it is only announced.
//
// clear_i drops what is stored and overwrites it. What follows of a frame that it cut off is dropped as well: its words
// must not be taken for a command.
module ace_frame_in
  import ace_lane_pkg::*;
#(
  parameter int unsigned BodyWords = 500,
  parameter bit LongKeys = 1'b1,
  parameter int unsigned AddrWidth = 9  // of a frame's words
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 clear_i,
  input  logic [AddrWidth:0]   clear_at_i,
  input  logic                 valid_i,
  output logic                 ready_o,
  input  word_t                data_i,
  input  logic                 last_i,
  output logic                 frame_valid_o,      // a frame is there
  output logic                 frame_malformed_o,
  input  logic                 frame_done_i,       // it is not needed any more
  input  logic                 read_i,
  input  logic [AddrWidth-1:0] read_at_i,
  output word_t                word_o,             // from the cycle after read_i on
  output logic                 busy_o
);
  typedef logic [AddrWidth-1:0] addr_t;

  logic write_bank_q, read_bank_q;
  logic [1:0] full_q, malformed_q;
  logic drop_q;  // what comes belongs to a frame that was cut off
  logic inside_q;  // a frame has begun
  logic wrong_q;  // and is malformed already
  addr_t at_q, end_q;
  logic take, good, store;
  head_t head;

  assign ready_o = !clear_i && (drop_q || !full_q[write_bank_q]);
  assign take    = valid_i && ready_o;
  assign store   = take && !drop_q && !(inside_q && wrong_q);
  assign head    = head_of(data_i, BodyWords, LongKeys);
  assign good    = inside_q && !wrong_q && at_q == end_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      drop_q   <= 1'b0;
      inside_q <= 1'b0;
    end else if (clear_i) begin
      drop_q   <= drop_q || inside_q;
      inside_q <= 1'b0;
    end else if (take) begin
      drop_q   <= drop_q && !last_i;
      inside_q <= !drop_q && !last_i;
    end
  end

  always_ff @(posedge clk_i) begin
    if (clear_i) begin
      {wrong_q, at_q, end_q} <= '0;
    end else if (take && !drop_q) begin
      if (last_i) begin
        at_q <= '0;
      end else if (!inside_q) begin
        wrong_q <= !head.good;
        end_q   <= addr_t'(head.last_word);
        at_q    <= addr_t'(1);
      end else begin
        // Past its end a frame is malformed, so that the count need not go on.
        if (at_q == end_q) wrong_q <= 1'b1;
        else at_q <= at_q + 1'b1;
      end
    end
  end

  logic ends;
  assign ends = take && last_i && !drop_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      {write_bank_q, read_bank_q} <= '0;
      {full_q, malformed_q} <= '0;
    end else if (clear_i) begin
      {write_bank_q, read_bank_q} <= '0;
      {full_q, malformed_q} <= '0;
    end else begin
      if (ends) begin
        full_q[write_bank_q]      <= 1'b1;
        malformed_q[write_bank_q] <= !good;
        write_bank_q              <= !write_bank_q;
      end
      if (frame_done_i) begin
        full_q[read_bank_q] <= 1'b0;
        read_bank_q         <= !read_bank_q;
      end
    end
  end
  assign frame_valid_o     = full_q[read_bank_q];
  assign frame_malformed_o = malformed_q[read_bank_q];
  assign busy_o            = inside_q || drop_q || full_q != '0;

  // A word is never read in the cycle in which it is written.
  (* no_rw_check *)
  word_t mem[2 << AddrWidth];
  always_ff @(posedge clk_i) begin
    if (clear_i || store) mem[clear_i ? clear_at_i : {write_bank_q, at_q}] <= clear_i ? '0 : data_i;
    if (clear_i || read_i) word_o <= mem[{read_bank_q, read_at_i}];
  end
endmodule
