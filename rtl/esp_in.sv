// The inbound lane: ESP, also in UDP, comes in and the packets that were inside leave; what bypasses and what is for the
// host goes round the cipher.
//
//   frame_fifo + ip_parser -> policy, sa_in -> esp_decap -> esp_cipher -> frame_fifo + ip_parser + esp_trailer
//        |                                                                     | ICV, window, trailer, policy, ECN
//        +---------- bypass, to the host ------------------------------------> +-> out
//
// No byte of an inner packet leaves before its ICV was right. Packets that were opened keep their order, and so do the
// others; these may overtake those.
module esp_in #(
  parameter int unsigned Entries   = 64,    // of the policy
  parameter int unsigned Rows      = 1024,  // of the SAD
  parameter int unsigned HmacUnits = 0,     // 0: AES-GCM only
  parameter bit          Gcm       = 1'b1,  // 0: AES-CTR with HMAC only
  parameter int unsigned MaxBytes  = 2048,  // of a frame
  parameter int unsigned Beats     = 512,   // of each frame buffer
  parameter int unsigned OutDepth  = Beats / 2, // behind the cipher, and before another frame buffer
  parameter int unsigned PolicyPiece = 9,   // bits: 9 for block RAM, 4 for LUTs
  // Of the cipher; what synthesis takes is in syn/.
  parameter int unsigned RoundLatency = 2,
  parameter int unsigned SboxKind     = 0,
  parameter int unsigned GhashStages  = 3,
  parameter int unsigned GhashLeaf    = 32
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 enable_i,     // whether frames are taken
  input  logic                 exceptions_i, // fragments of ESP, and what lacks an SA, go to the host
  // Configuration: one of each table.
  input  logic                 cfg_policy_valid_i,
  output logic                 cfg_policy_ready_o,
  input  logic                 cfg_sa_valid_i,
  output logic                 cfg_sa_ready_o,
  input  logic                 cfg_key_valid_i,
  output logic                 cfg_key_ready_o,
  input  esp_pkg::row_t        cfg_row_i,
  input  logic           [5:0] cfg_word_i,
  input  logic          [31:0] cfg_data_i,
  input  logic                 snap_valid_i,
  output logic                 snap_ready_o,
  input  esp_pkg::row_t        snap_row_i,
  output logic         [191:0] snap_o,
  input  logic                 valid_i,
  output logic                 ready_o,
  input  esp_pkg::beat_t       beat_i,
  output logic                 valid_o,
  input  logic                 ready_i,
  output esp_pkg::beat_t       beat_o,
  output esp_pkg::user_t       user_o,
  // One frame is done with: it left, or was dropped.
  output logic                 count_valid_o,
  output esp_pkg::drop_e       count_reason_o,
  output logic          [15:0] count_bytes_o,
  output logic                 event_valid_o,
  output esp_pkg::event_e      event_o,
  output esp_pkg::row_t        event_row_o
);
  import esp_pkg::*;
  localparam int unsigned Frames = 16;
  localparam int unsigned BeatWidth = $clog2(Beats) + 1;
  localparam int unsigned LookupCycles = 8;
  localparam logic [15:0] EncapPort = 16'd4500;
  localparam logic [15:0] EspOverhead = 16'd32;  // header, IV and ICV

  // Frames in.
  typedef struct packed {
    logic       aside;
    logic [3:0] rest;  // bytes of its last beat, 0: 16
    user_t      user;
  } tag_t;

  logic entry_valid, take_valid, take_ready, frame_valid, frame_ready, frame_last, fifo_ready;
  drop_e entry_error;
  logic [BeatWidth-1:0] take_first, take_beats;
  tag_t take_tag, frame_tag;
  block_t frame_data;
  assign ready_o = fifo_ready && enable_i;

  frame_fifo #(
    .Beats(Beats),
    .MaxBytes(MaxBytes),
    .Frames(Frames),
    .TagWidth($bits(tag_t)),
    .Slice(1'b1)
  ) u_frames (
    .clk_i,
    .rst_ni,
    .valid_i(valid_i && enable_i),
    .ready_o(fifo_ready),
    .beat_i,
    .entry_valid_o(entry_valid),
    .entry_bytes_o(),
    .entry_error_o(entry_error),
    .take_valid_i(take_valid),
    .take_ready_o(take_ready),
    .take_first_i(take_first),
    .take_beats_i(take_beats),
    .take_tag_i(take_tag),
    .valid_o(frame_valid),
    .ready_i(frame_ready),
    .data_o(frame_data),
    .first_o(),
    .last_o(frame_last),
    .tag_o(frame_tag)
  );

  logic parse_done;
  parse_t parse;
  ip_parser u_parser (
    .clk_i,
    .rst_ni,
    .valid_i(valid_i && ready_o),
    .beat_i,
    .done_o (parse_done),
    .parse_o(parse)
  );

  // What a frame is, apart from the policy.
  typedef enum logic [2:0] {Malformed, Plain, Esp, EspFragment, HostOwn} kind_e;
  typedef struct packed {
    kind_e       kind;
    logic        short_;
    logic [7:0]  tos;
    logic [15:0] bytes;
    logic [13:0] start;     // word of the frame in which the body begins
    logic [15:0] body;      // bytes
    logic [31:0] spi;
    logic [31:0] seq_lo;
    logic [63:0] iv;
  } brief_t;
  typedef struct packed {
    policy_key_t key;
    brief_t      brief;
  } asked_t;

  asked_t asked_in, asked;
  brief_t brief;
  logic encap;
  logic [15:0] udp_bytes, esp_bytes, upper_bytes;
  logic [5:0][31:0] front;
  always_comb begin
    front       = parse.front;
    encap       = parse.protocol == 8'd17 && parse.ports_known && parse.destination_port == EncapPort;
    upper_bytes = parse.bytes - parse.upper;
    udp_bytes   = front[4][31:16];
    esp_bytes   = encap ? udp_bytes - 16'd8 : upper_bytes;
    asked_in.key          = policy_key(parse, 1'b0, 1'b0);
    asked_in.brief.tos    = parse.tos;
    asked_in.brief.bytes  = parse.bytes;
    asked_in.brief.start  = parse.upper[15:2] + (encap ? 14'd6 : 14'd4);
    asked_in.brief.body   = esp_bytes - EspOverhead;
    asked_in.brief.short_ = esp_bytes < EspOverhead + 16'd4 || esp_bytes[1:0] != '0;
    asked_in.brief.spi    = encap ? front[3] : front[5];
    asked_in.brief.seq_lo = encap ? front[2] : front[4];
    asked_in.brief.iv     = encap ? {front[1], front[0]} : {front[3], front[2]};
    asked_in.brief.kind   = Plain;
    if (parse.malformed) begin
      asked_in.brief.kind = Malformed;
    end else if (encap) begin
      // RFC 3948, 2.2 and 2.3: IKE behind four zero bytes, keepalives of one byte. Both are the host's.
      if (parse.fragment) asked_in.brief.kind = EspFragment;
      else if (upper_bytes < 16'd8 || udp_bytes < 16'd8 || udp_bytes > upper_bytes) asked_in.brief.kind = Malformed;
      else asked_in.brief.kind = esp_bytes < 16'd4 || front[3] == '0 ? HostOwn : Esp;
    end else if (parse.protocol == 8'd50 && parse.protocol_known) begin
      asked_in.brief.kind = parse.fragment ? EspFragment : Esp;
    end
  end

  // Each frame is looked up, in order. Never full: it takes as many as frame_fifo has entries, and two.
  logic asked_valid, asked_ready, brief_valid, brief_ready, result_valid, decided;
  stream_fifo #(
    .Width($bits(asked_t)),
    .Depth(2 * Frames),
    .Extra(1'b1),
    .Block(1'b1),
    .NeverFull(1'b1)
  ) u_asked (
    .clk_i,
    .rst_ni,
    .valid_i(parse_done),
    .ready_o(),
    .data_i (asked_in),
    .valid_o(asked_valid),
    .ready_i(asked_ready),
    .data_o (asked),
    .count_o()
  );

  // Inner packets are looked up too, and first.
  logic policy_ready, answer_valid, inner_asked_valid, inner_asked_ready;
  logic [LookupCycles-1:0] inner_q;
  policy_key_t inner_asked;
  policy_result_t answer, result;
  assign asked_ready       = policy_ready && brief_ready && !inner_asked_valid;
  assign inner_asked_ready = policy_ready;

  policy #(
    .Entries(Entries),
    .Piece(PolicyPiece)
  ) u_policy (
    .clk_i,
    .rst_ni,
    .cfg_valid_i(cfg_policy_valid_i),
    .cfg_ready_o(cfg_policy_ready_o),
    .cfg_row_i,
    .cfg_word_i,
    .cfg_data_i,
    .valid_i(inner_asked_valid || (asked_valid && brief_ready)),
    .ready_o(policy_ready),
    .key_i(inner_asked_valid ? inner_asked : asked.key),
    .valid_o(answer_valid),
    .result_o(answer)
  );
  always_ff @(posedge clk_i) inner_q <= {inner_q[LookupCycles-2:0], inner_asked_valid};

  stream_fifo #(
    .Width($bits(brief_t)),
    .Depth(Frames)
  ) u_briefs (
    .clk_i,
    .rst_ni,
    .valid_i(asked_valid && policy_ready && !inner_asked_valid),
    .ready_o(brief_ready),
    .data_i (asked.brief),
    .valid_o(brief_valid),
    .ready_i(decided),
    .data_o (brief),
    .count_o()
  );

  // Never full: there is a brief for each.
  stream_fifo #(
    .Width($bits(policy_result_t)),
    .Depth(2 * Frames),
    .NeverFull(1'b1)
  ) u_results (
    .clk_i,
    .rst_ni,
    .valid_i(answer_valid && !inner_q[LookupCycles-1]),
    .ready_o(),
    .data_i (answer),
    .valid_o(result_valid),
    .ready_i(decided),
    .data_o (result),
    .count_o()
  );

  // What becomes of the oldest frame.
  typedef enum logic [2:0] {Look, Ask, Answered, Take, Count} state_e;
  state_e state_q;
  drop_e reason_q;
  logic keep_q, aside_q, to_host_q;
  logic sa_valid, sa_ready, sa_answer_valid;
  drop_e refused;
  open_sa_t sa, sa_q;
  open_job_t job;
  logic job_valid, job_ready, counted, drop_taken;
  logic commit_valid, commit_ready, committed, sa_event_valid;
  drop_e commit_refused;
  logic [15:0] commit_bytes;
  row_t sa_event_row;
  opened_t opened;

  assign sa_valid = state_q == Ask;
  sa_in #(
    .Rows(Rows)
  ) u_sa (
    .clk_i,
    .rst_ni,
    .cfg_valid_i(cfg_sa_valid_i),
    .cfg_ready_o(cfg_sa_ready_o),
    .cfg_row_i,
    .cfg_word_i,
    .cfg_data_i,
    .snap_valid_i,
    .snap_ready_o,
    .snap_row_i,
    .snap_o,
    .valid_i(sa_valid),
    .ready_o(sa_ready),
    .ask_i('{spi: brief.spi, seq_lo: brief.seq_lo, short_: brief.short_}),
    .valid_o(sa_answer_valid),
    .ready_i(state_q == Answered),
    .refused_o(refused),
    .sa_o(sa),
    .commit_valid_i(commit_valid),
    .commit_ready_o(commit_ready),
    .commit_row_i(opened.sa.row),
    .commit_generation_i(opened.sa.generation),
    .commit_seq_i(opened.sa.seq),
    .commit_bytes_i(commit_bytes),
    .committed_o(committed),
    .commit_refused_o(commit_refused),
    .event_valid_o(sa_event_valid),
    .event_row_o(sa_event_row)
  );

  // The oldest frame's, from its first cycle on.
  logic [15:0] end_word_q;  // behind the ICV
  logic [BeatWidth-1:0] frame_beats_q;
  assign take_valid = state_q == Take && (aside_q || !keep_q || job_ready);
  assign job_valid  = state_q == Take && keep_q && !aside_q && take_ready;
  assign take_first = aside_q ? '0 : BeatWidth'(brief.start >> 2);
  always_comb begin
    take_beats = '0;
    if (keep_q) begin
      take_beats = aside_q ? frame_beats_q : BeatWidth'((end_word_q + 16'd3) >> 2) - BeatWidth'(brief.start >> 2);
    end
  end
  assign take_tag = '{
      aside: aside_q,
      rest: brief.bytes[3:0],
      user: '{unused: '0, row: '0, protect: 1'b0, reason: reason_q, to_host: to_host_q}
  };
  assign job = '{
      sa: sa_q,
      spi: brief.spi,
      iv: brief.iv,
      tos: brief.tos,
      shift: brief.start[1:0],
      bytes: brief.body
  };
  assign decided = (state_q == Take && keep_q && take_valid && take_ready) || (state_q == Count && drop_taken);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Look;
    end else begin
      unique case (state_q)
        Look: begin
          if (brief_valid && result_valid && entry_valid) begin
            if (entry_error != DropNone || brief.kind != Esp) state_q <= Take;
            else if (brief.body + EspOverhead < 16'd8) state_q <= Take;  // has no sequence number
            else state_q <= Ask;
          end
        end
        Ask: if (sa_ready) state_q <= Answered;
        Answered: if (sa_answer_valid) state_q <= Take;
        Take: if (take_valid && take_ready) state_q <= keep_q ? Look : Count;
        Count: if (drop_taken) state_q <= Look;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Look) begin
      end_word_q    <= 16'(brief.start) + 16'(brief.body >> 2) + 16'd4;
      frame_beats_q <= BeatWidth'((brief.bytes + 16'd15) >> 4);
      keep_q        <= 1'b0;
      aside_q       <= 1'b1;
      to_host_q     <= 1'b0;
      reason_q      <= DropNone;
      if (entry_error != DropNone) begin
        reason_q <= entry_error;
      end else begin
        unique case (brief.kind)
          Malformed: reason_q <= DropMalformed;
          Esp: reason_q <= DropShort;
          EspFragment: begin
            reason_q  <= DropFragment;
            keep_q    <= exceptions_i;
            to_host_q <= exceptions_i;
          end
          HostOwn: begin
            keep_q    <= 1'b1;
            to_host_q <= 1'b1;
          end
          Plain: begin
            keep_q    <= result.action inside {Bypass, ToHost};
            to_host_q <= result.action == ToHost;
            if (!result.hit) reason_q <= DropNoPolicy;
            else if (result.action == Discard) reason_q <= DropPolicy;
            else if (result.action == Protect) reason_q <= DropNotProtected;
          end
        endcase
      end
    end
    if (state_q == Answered && sa_answer_valid) begin
      sa_q      <= sa;
      reason_q  <= refused;
      keep_q    <= refused == DropNone || (exceptions_i && refused == DropNoSa);
      aside_q   <= refused != DropNone;
      to_host_q <= refused != DropNone;
    end
  end

  // Aside, or to the cipher.
  logic decap_ready, aside_ready, aside_valid;
  beat_t aside_beat, aside_out;
  user_t aside_user;
  logic [1:0] merge_ready;
  assign frame_ready     = frame_tag.aside ? aside_ready : decap_ready;
  assign aside_beat.data = frame_data;
  assign aside_beat.keep = frame_last && frame_tag.rest != '0 ? ~('1 << frame_tag.rest) : '1;
  assign aside_beat.last = frame_last;

  stream_fifo #(
    .Width($bits(beat_t) + $bits(user_t)),
    .Depth(Beats / 4)
  ) u_aside (
    .clk_i,
    .rst_ni,
    .valid_i(frame_valid && frame_tag.aside),
    .ready_o(aside_ready),
    .data_i ({aside_beat, frame_tag.user}),
    .valid_o(aside_valid),
    .ready_i(merge_ready[1]),
    .data_o ({aside_out, aside_user}),
    .count_o()
  );

  // The next packet's job waits here, so that its frame is read ahead.
  logic next_valid, next_ready;
  open_job_t next;
  stream_fifo #(
    .Width($bits(open_job_t)),
    .Depth(2)
  ) u_jobs (
    .clk_i,
    .rst_ni,
    .valid_i(job_valid),
    .ready_o(job_ready),
    .data_i (job),
    .valid_o(next_valid),
    .ready_i(next_ready),
    .data_o (next),
    .count_o()
  );

  logic opened_in_valid, opened_in_ready, cmd_valid, cmd_ready, body_valid, body_ready, icv_valid, icv_ready;
  opened_t opened_in;
  cipher_cmd_t cmd;
  beat_t body;
  logic [127:0] icv;
  esp_decap u_decap (
    .clk_i,
    .rst_ni,
    .job_valid_i(next_valid),
    .job_ready_o(next_ready),
    .job_i(next),
    .valid_i(frame_valid && !frame_tag.aside),
    .ready_o(decap_ready),
    .data_i(frame_data),
    .last_i(frame_last),
    .opened_valid_o(opened_in_valid),
    .opened_ready_i(opened_in_ready),
    .opened_o(opened_in),
    .cmd_valid_o(cmd_valid),
    .cmd_ready_i(cmd_ready),
    .cmd_o(cmd),
    .body_valid_o(body_valid),
    .body_ready_i(body_ready),
    .body_o(body),
    .icv_valid_o(icv_valid),
    .icv_ready_i(icv_ready),
    .icv_o(icv)
  );

  logic opened_valid, finished;
  stream_fifo #(
    .Width($bits(opened_t)),
    .Depth(Frames)
  ) u_opened (
    .clk_i,
    .rst_ni,
    .valid_i(opened_in_valid),
    .ready_o(opened_in_ready),
    .data_i (opened_in),
    .valid_o(opened_valid),
    .ready_i(finished),
    .data_o (opened),
    .count_o()
  );

  logic made_valid, made_ready, plain_valid, plain_ready, tag_valid;
  beat_t made, plain;
  cipher_tag_t tag;
  esp_cipher #(
    .Open(1'b1),
    .Rows(Rows),
    .HmacUnits(HmacUnits),
    .Gcm(Gcm),
    .OutDepth(OutDepth),
    .RoundLatency(RoundLatency),
    .SboxKind(SboxKind),
    .GhashStages(GhashStages),
    .GhashLeaf(GhashLeaf)
  ) u_cipher (
    .clk_i,
    .rst_ni,
    .cfg_valid_i(cfg_key_valid_i),
    .cfg_ready_o(cfg_key_ready_o),
    .cfg_row_i,
    .cfg_word_i,
    .cfg_data_i,
    .cmd_valid_i(cmd_valid),
    .cmd_ready_o(cmd_ready),
    .cmd_i(cmd),
    .body_valid_i(body_valid),
    .body_ready_o(body_ready),
    .body_i(body),
    .icv_valid_i(icv_valid),
    .icv_ready_o(icv_ready),
    .icv_i(icv),
    .out_valid_o(made_valid),
    .out_ready_i(made_ready),
    .out_o(made),
    .tag_valid_o(tag_valid),
    .tag_ready_i(finished),
    .tag_o(tag),
    .tap_valid_o(),
    .tap_o()
  );

  stream_slice #(
    .Width($bits(beat_t))
  ) u_plain_slice (
    .clk_i,
    .rst_ni,
    .valid_i(made_valid),
    .ready_o(made_ready),
    .data_i (made),
    .valid_o(plain_valid),
    .ready_i(plain_ready),
    .data_o (plain)
  );

  // What was inside waits here until all is known.
  typedef struct packed {
    logic       change;  // of the TOS, for ECN or DSCP
    logic       v6;
    logic [7:0] tos;
    logic [3:0] rest;
    user_t      user;
  } inner_tag_t;
  logic inner_entry_valid, inner_take_valid, inner_take_ready, inner_valid, inner_ready, inner_first, inner_last;
  drop_e inner_entry_error;
  logic [BeatWidth-1:0] inner_take_beats, inner_beats_q;
  inner_tag_t inner_take_tag, inner_tag;
  block_t inner_data;
  frame_fifo #(
    .Beats(Beats),
    .MaxBytes(MaxBytes),
    .Frames(Frames),
    .TagWidth($bits(inner_tag_t))
  ) u_inner (
    .clk_i,
    .rst_ni,
    .valid_i(plain_valid),
    .ready_o(plain_ready),
    .beat_i(plain),
    .entry_valid_o(inner_entry_valid),
    .entry_bytes_o(),
    .entry_error_o(inner_entry_error),
    .take_valid_i(inner_take_valid),
    .take_ready_o(inner_take_ready),
    .take_first_i('0),
    .take_beats_i(inner_take_beats),
    .take_tag_i(inner_take_tag),
    .valid_o(inner_valid),
    .ready_i(inner_ready),
    .data_o(inner_data),
    .first_o(inner_first),
    .last_o(inner_last),
    .tag_o(inner_tag)
  );

  logic inner_done, trailer_done;
  parse_t inner_parse;
  // The trailer is known three cycles before the header.
  localparam int unsigned TrailerAhead = 3;
  trailer_t trailer_in, trailer;
  trailer_t [TrailerAhead-1:0] trailers_q;
  logic trailer_in_done;
  logic [TrailerAhead-1:0] trailer_done_q;
  ip_parser u_inner_parser (
    .clk_i,
    .rst_ni,
    .valid_i(plain_valid && plain_ready),
    .beat_i (plain),
    .done_o (inner_done),
    .parse_o(inner_parse)
  );
  esp_trailer u_trailer (
    .clk_i,
    .rst_ni,
    .valid_i  (plain_valid && plain_ready),
    .beat_i   (plain),
    .done_o   (trailer_in_done),
    .trailer_o(trailer_in)
  );
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) trailer_done_q <= '0;
    else trailer_done_q <= {trailer_done_q[TrailerAhead-2:0], trailer_in_done};
  end
  always_ff @(posedge clk_i) trailers_q <= {trailers_q[TrailerAhead-2:0], trailer_in};
  assign trailer_done = trailer_done_q[TrailerAhead-1];
  assign trailer      = trailers_q[TrailerAhead-1];

  typedef struct packed {
    logic        malformed;
    logic        v6;
    logic [7:0]  tos;
    logic [15:0] bytes;
    trailer_t    trailer;
  } inside_t;
  inside_t inside_in, inner;
  logic inner_known, inner_result_valid;
  policy_result_t inner_result;
  assign inside_in = '{
      malformed: inner_parse.malformed,
      v6: inner_parse.v6,
      tos: inner_parse.tos,
      bytes: inner_parse.bytes,
      trailer: trailer
  };
  // These are never full: frame_fifo has no entries for more.
  stream_fifo #(
    .Width($bits(inside_t)),
    .Depth(2 * Frames),
    .NeverFull(1'b1)
  ) u_inside (
    .clk_i,
    .rst_ni,
    .valid_i(inner_done && trailer_done),
    .ready_o(),
    .data_i (inside_in),
    .valid_o(inner_known),
    .ready_i(finished),
    .data_o (inner),
    .count_o()
  );
  stream_fifo #(
    .Width($bits(policy_key_t)),
    .Depth(2 * Frames),
    .Extra(1'b1),
    .Block(1'b1),
    .NeverFull(1'b1)
  ) u_inner_asked (
    .clk_i,
    .rst_ni,
    .valid_i(inner_done),
    .ready_o(),
    .data_i (policy_key(inner_parse, 1'b0, 1'b1)),
    .valid_o(inner_asked_valid),
    .ready_i(inner_asked_ready),
    .data_o (inner_asked),
    .count_o()
  );
  stream_fifo #(
    .Width($bits(policy_result_t)),
    .Depth(2 * Frames),
    .NeverFull(1'b1)
  ) u_inner_results (
    .clk_i,
    .rst_ni,
    .valid_i(answer_valid && inner_q[LookupCycles-1]),
    .ready_o(),
    .data_i (answer),
    .valid_o(inner_result_valid),
    .ready_i(finished),
    .data_o (inner_result),
    .count_o()
  );

  // What becomes of the oldest packet that was opened.
  typedef enum logic [2:0] {Weigh, Commit, Committed, Give, GiveCount} give_e;
  give_e give_q;
  drop_e verdict, verdict_q;
  logic [7:0] new_tos;
  logic [1:0] new_ecn;
  logic ecn_lost;

  // RFC 6040, 4.2, figure 4.
  always_comb begin
    ecn_lost = inner.tos[1:0] == 2'b00 && opened.tos[1:0] == 2'b11;
    new_ecn  = inner.tos[1:0];
    if (inner.tos[1:0] != 2'b00) begin
      if (inner.tos[1:0] == 2'b11 || opened.tos[1:0] == 2'b11) new_ecn = 2'b11;
      else if (opened.tos[1:0] == 2'b01) new_ecn = 2'b01;
    end
    new_tos = {opened.sa.dscp ? opened.tos[7:2] : inner.tos[7:2], new_ecn};
  end

  logic inner_bad, inner_allowed;
  assign inner_bad = inner_entry_error != DropNone || inner.malformed || inner.bytes > inner.trailer.payload
                     || inner.v6 != (inner.trailer.next_header == 8'd41);
  assign inner_allowed = inner_result.hit && inner_result.action == Protect && inner_result.target == opened.sa.group;
  always_comb begin
    verdict = DropNone;
    if (!inner.trailer.sound) verdict = DropPadding;
    else if (inner.trailer.next_header == 8'd59) verdict = DropDummy;
    else if (!(inner.trailer.next_header inside {8'd4, 8'd41})) verdict = DropNextHeader;
    else if (inner_bad) verdict = DropInner;
    else if (!inner_allowed) verdict = DropSelector;
    else if (ecn_lost) verdict = DropEcn;
  end

  assign commit_valid     = give_q == Commit;
  assign commit_bytes     = verdict_q == DropNone ? inner.bytes : '0;
  assign inner_take_valid = give_q == Give;
  assign inner_take_beats = verdict_q == DropNone ? inner_beats_q : '0;
  always_ff @(posedge clk_i) begin
    if (give_q == Weigh) begin
      inner_beats_q  <= BeatWidth'((inner.bytes + 16'd15) >> 4);
      inner_take_tag <= '{
          change: new_tos != inner.tos,
          v6: inner.v6,
          tos: new_tos,
          rest: inner.bytes[3:0],
          user: '{unused: '0, row: opened.sa.row, protect: 1'b1, reason: DropNone, to_host: 1'b0}
      };
    end
  end
  assign finished = (give_q == Give && inner_take_ready && verdict_q == DropNone) || (give_q == GiveCount && counted);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      give_q <= Weigh;
    end else begin
      unique case (give_q)
        Weigh: begin
          if (tag_valid && opened_valid && inner_known && inner_result_valid && inner_entry_valid) begin
            give_q <= tag.ok ? Commit : Give;
          end
        end
        Commit: if (commit_ready) give_q <= Committed;
        Committed: if (committed) give_q <= Give;
        Give: if (inner_take_ready) give_q <= verdict_q == DropNone ? Weigh : GiveCount;
        GiveCount: if (counted) give_q <= Weigh;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (give_q == Weigh) verdict_q <= tag.ok ? verdict : DropIcv;
    if (give_q == Committed && committed && commit_refused != DropNone) verdict_q <= commit_refused;
  end

  // The TOS changes in the first beat, and with it an IPv4 checksum (RFC 1624).
  block_t patched;
  logic [15:0] word_old, word_new, sum_old;
  logic [17:0] sum;
  logic [16:0] once;
  logic [15:0] sum_new;
  always_comb begin
    word_old = {inner_data[7:0], inner_data[15:8]};
    word_new = inner_tag.v6 ? {word_old[15:12], inner_tag.tos, word_old[3:0]} : {word_old[15:8], inner_tag.tos};
    sum_old  = {inner_data[87:80], inner_data[95:88]};
    sum      = 18'(16'(~sum_old)) + 18'(16'(~word_old)) + 18'(word_new);
    once     = 17'(sum[15:0]) + 17'(sum[17:16]);
    sum_new  = ~(once[15:0] + 16'(once[16]));
    patched  = inner_data;
    if (inner_first && inner_tag.change) begin
      patched[15:0] = {word_new[7:0], word_new[15:8]};
      if (!inner_tag.v6) patched[95:80] = {sum_new[7:0], sum_new[15:8]};
    end
  end

  // A register between that and the merging.
  logic out_valid_q;
  beat_t out_q;
  user_t out_user_q;
  assign inner_ready = !out_valid_q || merge_ready[0];
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) out_valid_q <= 1'b0;
    else if (inner_ready) out_valid_q <= inner_valid;
  end
  always_ff @(posedge clk_i) begin
    if (inner_ready) begin
      out_q.data <= patched;
      out_q.keep <= inner_last && inner_tag.rest != '0 ? ~('1 << inner_tag.rest) : '1;
      out_q.last <= inner_last;
      out_user_q <= inner_tag.user;
    end
  end

  logic left;
  logic [15:0] left_bytes;
  frame_merge u_merge (
    .clk_i,
    .rst_ni,
    .valid_i({aside_valid, out_valid_q}),
    .ready_o(merge_ready),
    .beat_i({aside_out, out_q}),
    .user_i({aside_user, out_user_q}),
    .valid_o,
    .ready_i,
    .beat_o,
    .user_o,
    .left_o(left),
    .left_bytes_o(left_bytes)
  );

  // One a cycle: drops wait.
  assign counted        = give_q == GiveCount && !left;
  assign drop_taken     = state_q == Count && !left && give_q != GiveCount;
  assign count_valid_o  = left || give_q == GiveCount || state_q == Count;
  assign count_reason_o = left ? DropNone : give_q == GiveCount ? verdict_q : reason_q;
  assign count_bytes_o  = left_bytes;

  assign event_valid_o = sa_event_valid;
  assign event_o       = EventHard;
  assign event_row_o   = sa_event_row;

  // A packet's tag comes before its body leaves.
  if ((MaxBytes + 20) / 16 > OutDepth - 64) begin : g_too_shallow
    $error("OutDepth must be 64 beats more than a packet of MaxBytes takes");
  end
endmodule
