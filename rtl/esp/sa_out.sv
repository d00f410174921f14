// The outbound SAD: gives a packet its sequence number and all that goes around it, or refuses it. Eight cycles a packet.
//
// Rows are in block RAM, written by the host: word 1 has the valid bit and is to be written last. After reset all rows
// are made invalid, which takes a cycle each; nothing is taken before. The IV is the row's IV base XOR the sequence
// number, unique because that is.
module sa_out #(
  parameter int unsigned Rows = 1024  // a power of two, at most 1024
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               cfg_valid_i,
  output logic               cfg_ready_o,
  input  esp_pkg::row_t      cfg_row_i,
  input  logic         [5:0] cfg_word_i,
  input  logic        [31:0] cfg_data_i,
  // Reads a row's state for the host: {0, bytes, last sequence number}. It is in snap_o when ready.
  input  logic               snap_valid_i,
  output logic               snap_ready_o,
  input  esp_pkg::row_t      snap_row_i,
  output logic       [191:0] snap_o,
  input  logic               valid_i,
  output logic               ready_o,
  input  esp_pkg::seal_ask_t ask_i,
  output logic               valid_o,
  input  logic               ready_i,
  output esp_pkg::drop_e     refused_o,
  output esp_pkg::seal_job_t job_o,
  output logic               event_valid_o,
  output esp_pkg::event_e    event_o
);
  import esp_pkg::*;
  localparam int unsigned Words = 20;
  localparam int unsigned AddrWidth = $clog2(Rows);
  typedef logic [AddrWidth-1:0] addr_t;

  typedef struct packed {
    generation_t generation;
    logic       copy_label;
    logic [7:0] ttl;
    logic [5:0] dscp;
    logic       dscp_fixed;
    logic       ecn_clear;
    logic [1:0] df;           // 0 copy, 1 set, 2 clear
    logic       esn;
    logic       v6;
    logic       udp;
    suite_e     suite;
    logic       valid;
  } flags_t;

  typedef enum logic [3:0] {Wipe, Idle, Aim, Fetch, Read, Sum, Check, Decide, Answer} state_e;
  state_e state_q;
  addr_t wipe_q, row_addr, read_addr_q;
  seal_ask_t ask_q;
  logic cfg_write, store, read, first_refusal_q;
  typedef enum logic [2:0] {SnapNone, SnapAim, SnapRead, SnapWait, SnapTake, SnapDone} snap_e;
  snap_e snap_q;

  assign snap_ready_o = snap_q == SnapDone;
  assign ready_o      = state_q == Idle;
  assign valid_o      = state_q == Answer;
  assign cfg_ready_o  = state_q inside {Idle, Aim};
  assign cfg_write    = cfg_valid_i && cfg_ready_o;
  assign store        = valid_o && ready_i && (refused_o == DropNone || first_refusal_q);
  assign row_addr     = ask_q.row[AddrWidth-1:0];

  // What is to be written, a cycle before it is: the memories are many, and the ways to them long. A row is never read in
  // the cycle in which something is written: Fetch waits for what came in the cycle before. From then on nothing is taken
  // until the numbers of the packet are written: else they could be written over those of the row's next SA.
  logic write_q, write_number_q, write_bytes_q;
  logic [Words-1:0] write_word_q;
  addr_t write_addr_q;
  logic [31:0] write_data_q;
  assign read = state_q == Fetch && !write_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      write_q        <= 1'b0;
      write_word_q   <= '0;
      write_number_q <= 1'b0;
      write_bytes_q  <= 1'b0;
    end else begin
      write_q <= cfg_write || store;
      for (int unsigned w = 0; w < Words; w++) write_word_q[w] <= cfg_write && cfg_word_i == 6'(w);
      if (state_q == Wipe) write_word_q[1] <= 1'b1;
      write_number_q <= store || (cfg_write && cfg_word_i == 6'd21);
      write_bytes_q  <= (store && refused_o == DropNone) || (cfg_write && cfg_word_i == 6'd23);
    end
  end
  always_ff @(posedge clk_i) begin
    write_data_q <= state_q == Wipe ? '0 : cfg_data_i;
    write_addr_q <= state_q == Wipe ? wipe_q : state_q == Answer ? row_addr : cfg_row_i[AddrWidth-1:0];
  end

  // The host's words. A register lies behind the memory's own, whose delay is long.
  logic [31:0] word_q[Words];
  logic [31:0] low_q;  // the low half of what is committed with the high one
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

  // What packets change. A row whose limit was reported is not reported again.
  (* no_rw_check *)
  logic [64:0] numbers[Rows];  // {reported, last sequence number}
  (* no_rw_check *)
  logic [63:0] bytes[Rows];
  logic [64:0] number_read_q, number_q, number_d, write_number_data_q;
  logic [63:0] bytes_read_q, bytes_q, bytes_next_q, write_bytes_data_q;
  always_ff @(posedge clk_i) begin
    write_number_data_q <= state_q == Answer ? number_d : {1'b0, cfg_data_i, low_q};
    write_bytes_data_q  <= state_q == Answer ? bytes_next_q : {cfg_data_i, low_q};
    if (write_number_q) numbers[write_addr_q] <= write_number_data_q;
    if (write_bytes_q) bytes[write_addr_q] <= write_bytes_data_q;
    read_addr_q   <= state_q == Idle ? snap_row_i[AddrWidth-1:0] : row_addr;
    number_read_q <= numbers[read_addr_q];
    bytes_read_q  <= bytes[read_addr_q];
    number_q      <= number_read_q;
    bytes_q       <= bytes_read_q;
    if (cfg_write) low_q <= cfg_data_i;
    if (snap_q == SnapTake) snap_o <= {64'b0, bytes_q, number_q[63:0]};
  end

  flags_t flags;
  logic [63:0] seq_last_q, bytes_last_q, limit, soft_limit, bytes_limit, seq_q, iv_q;
  logic [15:0] outer_bytes_q;
  logic same_q, ended_q, hard_seq_q, hard_bytes_q, soft_q, too_big_q, reported_q;
  logic [15:0] identification_q, identification_d;
  drop_e refusal;

  assign flags       = flags_t'(word_q[1]);
  assign limit       = {word_q[15], word_q[14]};
  assign soft_limit  = {word_q[17], word_q[16]};
  assign bytes_limit = {word_q[19], word_q[18]};

  always_comb begin
    refusal = DropNone;
    if (!flags.valid || !same_q) refusal = DropNoSa;
    else if (too_big_q) refusal = DropTooBig;
    else if (hard_seq_q || hard_bytes_q) refusal = DropLifetime;
    else if (ended_q) refusal = DropSequenceEnd;
  end

  assign number_d         = {reported_q || refused_o != DropNone, refused_o == DropNone ? seq_q : seq_last_q};
  assign identification_d = identification_q == '1 ? 16'd1 : identification_q + 16'd1;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q          <= Wipe;
      wipe_q           <= '0;
      snap_q           <= SnapNone;
      identification_q <= '0;
      event_valid_o    <= 1'b0;
    end else begin
      event_valid_o <= 1'b0;
      unique case (snap_q)
        SnapNone: if (snap_valid_i) snap_q <= SnapAim;
        SnapAim: if (state_q == Idle) snap_q <= SnapRead;
        SnapRead: snap_q <= write_q ? SnapAim : SnapWait;
        SnapWait: snap_q <= SnapTake;
        SnapTake: snap_q <= SnapDone;
        SnapDone: snap_q <= SnapNone;
      endcase
      unique case (state_q)
        Wipe: begin
          wipe_q <= wipe_q + 1'b1;
          if (wipe_q == '1) state_q <= Idle;
        end
        Idle: if (valid_i) state_q <= Aim;
        Aim: state_q <= Fetch;
        Fetch: if (read) state_q <= Read;
        Read: state_q <= Sum;
        Sum: state_q <= Check;
        Check: state_q <= Decide;
        Decide: begin
          state_q <= Answer;
          if (refusal == DropNone) identification_q <= identification_d;
        end
        Answer: begin
          if (ready_i) state_q <= Idle;
          event_valid_o <= ready_i && ((refused_o == DropNone && soft_q) || first_refusal_q);
        end
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Idle) ask_q <= ask_i;
    if (state_q == Sum) begin
      seq_last_q    <= number_q[63:0];
      seq_q         <= number_q[63:0] + 1'b1;
      reported_q    <= number_q[64];
      bytes_last_q  <= bytes_q;
      outer_bytes_q <= body_bytes(ask_q.bytes) + (flags.v6 ? 16'd72 : 16'd52) + (flags.udp ? 16'd8 : 16'd0);
    end
    if (state_q == Check) begin
      same_q       <= flags.generation == ask_q.generation;
      ended_q      <= seq_last_q >= (flags.esn ? 64'hffff_ffff_ffff_fffe : 64'hffff_ffff);
      hard_seq_q   <= seq_last_q >= limit;
      hard_bytes_q <= bytes_last_q >= bytes_limit;
      soft_q       <= seq_q == soft_limit;
      too_big_q    <= word_q[2][15:0] != '0 && outer_bytes_q > word_q[2][15:0];
      iv_q         <= {word_q[13], word_q[12]} ^ seq_q;
      bytes_next_q <= bytes_last_q + 64'(ask_q.bytes);
    end
    if (state_q == Decide) begin
      refused_o       <= refusal;
      first_refusal_q <= refusal inside {DropLifetime, DropSequenceEnd} && !reported_q;
      event_o         <= refusal == DropLifetime ? EventHard : refusal == DropSequenceEnd ? EventSequence : EventSoft;
      job_o <= '{
          suite: flags.suite,
          row: ask_q.row,
          generation: ask_q.generation,
          esn: flags.esn,
          spi: word_q[0],
          seq: seq_q,
          iv: iv_q,
          inner_bytes: ask_q.bytes,
          inner_v6: ask_q.v6,
          v6: flags.v6,
          udp: flags.udp,
          dont_fragment: (flags.df == 2'd0 && ask_q.dont_fragment) || flags.df == 2'd1,
          tos: {flags.dscp_fixed ? flags.dscp : ask_q.tos[7:2], flags.ecn_clear ? 2'b00 : ask_q.tos[1:0]},
          ttl: flags.ttl,
          flow_label: flags.copy_label && ask_q.v6 ? ask_q.flow_label : '0,
          identification: identification_d,
          local_port: word_q[3][31:16],
          remote_port: word_q[3][15:0],
          local_address: {word_q[7], word_q[6], word_q[5], word_q[4]},
          remote_address: {word_q[11], word_q[10], word_q[9], word_q[8]}
      };
    end
  end
endmodule
