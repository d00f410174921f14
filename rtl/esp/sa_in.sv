// The inbound SAD. A packet asks twice: before it is opened, when its SA and its whole sequence number are found, and once
// its ICV was right, when its number is looked at again and taken into the window. Both sides work at the same time, on a
// copy each of what they read; only the second writes. Nine cycles a packet before, seven after.
//
// The row is the low bits of the SPI. Rows are written by the host, word 1 with the valid bit last; after reset all rows
// are made invalid, a cycle each.
module sa_in #(
  parameter int unsigned Rows = 1024  // a power of two, at most 1024
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 cfg_valid_i,
  output logic                 cfg_ready_o,
  input  esp_pkg::row_t        cfg_row_i,
  input  logic           [5:0] cfg_word_i,
  input  logic          [31:0] cfg_data_i,
  // Reads a row's state for the host: {window, bytes, highest sequence number}. It is in snap_o when ready.
  input  logic                 snap_valid_i,
  output logic                 snap_ready_o,
  input  esp_pkg::row_t        snap_row_i,
  output logic         [191:0] snap_o,
  // Before.
  input  logic                 valid_i,
  output logic                 ready_o,
  input  esp_pkg::open_ask_t   ask_i,
  output logic                 valid_o,
  input  logic                 ready_i,
  output esp_pkg::drop_e       refused_o,
  output esp_pkg::open_sa_t    sa_o,
  // After.
  input  logic                 commit_valid_i,
  output logic                 commit_ready_o,
  input  esp_pkg::row_t        commit_row_i,
  input  esp_pkg::generation_t commit_generation_i,
  input  logic          [63:0] commit_seq_i,
  input  logic          [15:0] commit_bytes_i,
  output logic                 committed_o,     // for a cycle: the answer
  output esp_pkg::drop_e       commit_refused_o,
  output logic                 event_valid_o,   // the byte lifetime ended
  output esp_pkg::row_t        event_row_o
);
  import esp_pkg::*;
  localparam int unsigned Words = 4;
  localparam int unsigned Window = 64;
  localparam int unsigned AddrWidth = $clog2(Rows);
  typedef logic [AddrWidth-1:0] addr_t;

  typedef struct packed {
    logic [5:0] unused_high;
    row_t       group;
    generation_t generation;
    logic       no_check;
    logic       dscp;
    logic       unused_low;
    logic       esn;
    logic [1:0] unused_middle;
    suite_e     suite;
    logic       valid;
  } flags_t;

  typedef struct packed {
    logic [Window-1:0] seen;
    logic [63:0]       bytes;
    logic [63:0]       top;
  } row_state_t;

  typedef enum logic [3:0] {Wipe, Idle, Aim, Fetch, Read, Bottom, Infer, Compare, Decide, Answer} state_e;
  state_e state_q;
  typedef enum logic [2:0] {BackIdle, BackAim, BackFetch, BackRead, BackHold, BackCompare, BackStore} back_e;
  back_e back_q;
  typedef enum logic [2:0] {SnapNone, SnapAim, SnapRead, SnapTake, SnapDone} snap_e;
  snap_e snap_q;

  addr_t wipe_q, read_addr_q, back_addr_q;
  open_ask_t ask_q;
  row_t back_row_number_q;
  logic cfg_write, store, read;
  assign snap_ready_o = snap_q == SnapDone;
  assign ready_o      = state_q == Idle;
  assign valid_o      = state_q == Answer;
  assign cfg_ready_o  = !(state_q inside {Wipe, Fetch}) && back_q inside {BackIdle, BackAim};
  assign cfg_write    = cfg_valid_i && cfg_ready_o;

  // What is to be written, a cycle before it is: the memories are many, and the ways to them long. Nothing is read in the
  // cycle in which something is written: Fetch, BackFetch and SnapRead wait for what came in the cycle before. From BackFetch
  // on nothing is taken until BackStore, which else could write over the row's next SA.
  logic write_q, write_limit_q, write_state_q;
  logic [Words-1:0] write_word_q;
  addr_t write_addr_q;
  logic [31:0] write_data_q, low_q;  // low_q: the low half of what is committed with the high one
  row_state_t stored, write_row_q;
  assign read = state_q == Fetch && !write_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      write_q       <= 1'b0;
      write_word_q  <= '0;
      write_limit_q <= 1'b0;
      write_state_q <= 1'b0;
    end else begin
      write_q <= cfg_write || store;
      for (int unsigned w = 0; w < Words; w++) write_word_q[w] <= cfg_write && cfg_word_i == 6'(w);
      if (state_q == Wipe) write_word_q[1] <= 1'b1;
      write_limit_q <= cfg_write && cfg_word_i == 6'd3;
      write_state_q <= store || (cfg_write && cfg_word_i == 6'd5);
    end
  end
  always_ff @(posedge clk_i) begin
    write_data_q <= state_q == Wipe ? '0 : cfg_data_i;
    write_addr_q <= cfg_row_i[AddrWidth-1:0];
    if (state_q == Wipe) write_addr_q <= wipe_q;
    else if (back_q == BackStore) write_addr_q <= back_row_number_q[AddrWidth-1:0];
    write_row_q  <= back_q == BackStore ? stored : '{seen: 64'd1, bytes: '0, top: {cfg_data_i, low_q}};
    if (cfg_write) low_q <= cfg_data_i;
  end

  // The host's words. A register lies behind the memory's own, whose delay is long.
  logic [31:0] word_q[Words];
  for (genvar w = 0; w < Words; w++) begin : g_word
    (* no_rw_check *)
    logic [31:0] mem[Rows];
    logic [31:0] read_q;
    always_ff @(posedge clk_i) begin
      if (write_word_q[w]) mem[write_addr_q] <= write_data_q;
      if (read) read_q <= mem[read_addr_q];
      word_q[w] <= read_q;
    end
  end

  // What packets change: a copy for each side.
  (* no_rw_check *)
  row_state_t front_mem[Rows];
  (* no_rw_check *)
  row_state_t back_mem[Rows];
  row_state_t front_q, back_row_q;
  always_ff @(posedge clk_i) begin
    if (write_state_q) begin
      front_mem[write_addr_q] <= write_row_q;
      back_mem[write_addr_q]  <= write_row_q;
    end
    read_addr_q <= ask_q.spi[AddrWidth-1:0];
    back_addr_q <= back_q == BackIdle ? snap_row_i[AddrWidth-1:0] : back_row_number_q[AddrWidth-1:0];
    front_q     <= front_mem[read_addr_q];
    back_row_q  <= back_mem[back_addr_q];
    if (snap_q == SnapTake) snap_o <= back_row_q;
  end

  // Before: the SA, the whole number (RFC 4303, A2.2), a first look at the window.
  flags_t flags;
  row_state_t held_q;
  logic [63:0] bottom_q, number_q;
  logic below_q, before_q, hard_q, fresh;
  assign flags = flags_t'(word_q[1]);

  replay_window #(
    .Window(Window)
  ) u_before (
    .clk_i,
    .off_i(flags.no_check),
    .top_i(held_q.top),
    .seen_i(held_q.seen),
    .number_i(number_q),
    .fresh_o(fresh),
    .top_o(),
    .seen_o()
  );

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Wipe;
      wipe_q  <= '0;
    end else begin
      unique case (state_q)
        Wipe: begin
          wipe_q <= wipe_q + 1'b1;
          if (wipe_q == '1) state_q <= Idle;
        end
        Idle: if (valid_i) state_q <= Aim;
        Aim: state_q <= Fetch;
        Fetch: if (read) state_q <= Read;
        Read: state_q <= Bottom;
        Bottom: state_q <= Infer;
        Infer: state_q <= Compare;
        Compare: state_q <= Decide;
        Decide: state_q <= Answer;
        Answer: if (ready_i) state_q <= Idle;
      endcase
    end
  end

  drop_e refusal;
  always_comb begin
    refusal = DropNone;
    if (!flags.valid || word_q[0] != ask_q.spi) refusal = DropNoSa;
    else if (ask_q.too_short) refusal = DropShort;
    else if (hard_q) refusal = DropLifetime;
    else if (before_q || !fresh) refusal = DropReplay;
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Idle) ask_q <= ask_i;
    if (state_q == Read) held_q <= front_q;
    if (state_q == Bottom) begin
      bottom_q <= held_q.top - 64'(Window - 1);
      below_q  <= held_q.top < 64'(Window - 1);  // the window reaches below zero
      hard_q   <= held_q.bytes >= {word_q[3], word_q[2]};
    end
    if (state_q == Infer) begin
      // The one number with this low half in the 2^32 from the bottom on.
      number_q <= flags.esn ? bottom_q + 64'(32'(ask_q.seq_lo - bottom_q[31:0])) : {32'b0, ask_q.seq_lo};
    end
    // None may lie below zero or beyond the last subspace. u_before takes two cycles from Compare on.
    if (state_q == Compare) before_q <= flags.esn && (number_q < bottom_q) != below_q;
  end
  // u_before's answer is there in Answer.
  assign refused_o = refusal;
  assign sa_o = '{
      suite: flags.suite,
      row: ask_q.spi[RowWidth-1:0],
      generation: flags.generation,
      group: flags.group,
      esn: flags.esn,
      dscp: flags.dscp,
      seq: number_q
  };

  // After: look again, and mark.
  logic [63:0] back_seq_q, after_top;
  logic [15:0] back_bytes_q;
  logic [Window-1:0] after_seen;
  logic after_fresh, no_check_q, same_q, below_limit_q, reaches_q;
  generation_t back_generation_q;
  typedef struct packed {  // part of flags_t
    generation_t generation;
    logic        no_check;
  } back_flags_t;
  (* no_rw_check *)
  back_flags_t back_flags_mem[Rows];  // of word 1
  back_flags_t back_flags_q;
  row_state_t back_held_q;
  (* no_rw_check *)
  logic [63:0] limit_mem[Rows];
  logic [63:0] limit_read_q, limit_q, write_limit_data_q, bytes_next_q;

  replay_window #(
    .Window(Window)
  ) u_after (
    .clk_i,
    .off_i(no_check_q),
    .top_i(back_held_q.top),
    .seen_i(back_held_q.seen),
    .number_i(back_seq_q),
    .fresh_o(after_fresh),
    .top_o(after_top),
    .seen_o(after_seen)
  );

  assign commit_ready_o = back_q == BackIdle;
  assign store          = back_q == BackStore && commit_refused_o == DropNone;
  assign stored         = '{seen: after_seen, bytes: bytes_next_q, top: after_top};
  assign committed_o    = back_q == BackStore;
  assign commit_refused_o = !same_q ? DropNoSa : after_fresh ? DropNone : DropReplay;
  assign event_row_o    = back_row_number_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      back_q        <= BackIdle;
      snap_q        <= SnapNone;
      event_valid_o <= 1'b0;
    end else begin
      unique case (snap_q)
        SnapNone: if (snap_valid_i) snap_q <= SnapAim;
        SnapAim: if (back_q == BackIdle) snap_q <= SnapRead;
        SnapRead: snap_q <= write_q ? SnapAim : SnapTake;
        SnapTake: snap_q <= SnapDone;
        SnapDone: snap_q <= SnapNone;
      endcase
      event_valid_o <= store && below_limit_q && reaches_q;
      unique case (back_q)
        BackIdle: if (commit_valid_i) back_q <= BackAim;
        BackAim: back_q <= BackFetch;
        BackFetch: if (!write_q) back_q <= BackRead;
        BackRead: back_q <= BackHold;
        BackHold: back_q <= BackCompare;
        BackCompare: back_q <= BackStore;
        BackStore: back_q <= BackIdle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    write_limit_data_q <= {cfg_data_i, low_q};
    if (write_word_q[1]) back_flags_mem[write_addr_q] <= back_flags_t'(write_data_q[15:8]);
    if (write_limit_q) limit_mem[write_addr_q] <= write_limit_data_q;
    back_flags_q <= back_flags_mem[back_addr_q];
    limit_read_q <= limit_mem[back_addr_q];
    if (back_q == BackIdle) begin
      back_row_number_q <= commit_row_i;
      back_generation_q <= commit_generation_i;
      back_seq_q        <= commit_seq_i;
      back_bytes_q      <= commit_bytes_i;
    end
    if (back_q == BackRead) begin
      back_held_q <= back_row_q;
      no_check_q  <= back_flags_q.no_check;
      same_q      <= back_flags_q.generation == back_generation_q;
      limit_q     <= limit_read_q;
    end
    if (back_q == BackHold) begin
      below_limit_q <= back_held_q.bytes < limit_q;
      bytes_next_q  <= back_held_q.bytes + 64'(back_bytes_q);
    end
    if (back_q == BackCompare) reaches_q <= bytes_next_q >= limit_q;
  end
endmodule
