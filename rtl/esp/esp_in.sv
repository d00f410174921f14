// The inbound lane: ESP, also in UDP, comes in and the packets that were inside leave; what bypasses and what is for the
// host goes round the cipher.
//
//   esp_front -> esp_decap -> esp_cipher -> esp_verdict -> frame_merge --> out
//     |  sa_in                                 | policy      ^
//     +------- aside: bypass, to the host -----|-------------+
//                                              +-> sa_in: the window
//
// No byte of an inner packet leaves before its ICV was right. Packets that were opened keep their order. So do those that
// go aside, which may overtake the others.
//
//   answer      what sa_in says of a packet's SA; with the packet's own facts it is the job of esp_decap
//   opened      what is still needed of the job once the packet is decrypted
//   cipher_out  the decrypted body; behind a register it is plain
//   inner       the packet that was inside, after the verdict
//   left        a frame that left; drops of both kinds are counted in cycles without one
module esp_in #(
  parameter int unsigned Entries   = 64,    // of the policy
  parameter int unsigned Rows      = 1024,  // of the SAD
  parameter int unsigned HmacUnits = 0,     // 0: AES-GCM only
  parameter bit          Gcm       = 1'b1,  // 0: AES-CTR with HMAC only
  parameter int unsigned MaxBytes  = 2048,  // of a frame
  parameter int unsigned Beats     = 512,   // of each frame buffer
  parameter int unsigned OutDepth  = Beats / 2, // behind the cipher, and before another frame buffer
  parameter int unsigned PolicyPiece = 9,   // bits: 9 for block RAM, 4 for LUTs
  // Of the cipher; what synthesis takes is in rtl/syn.
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
  localparam logic [15:0] EncapPort = 16'd4500;
  localparam logic [15:0] EspOverhead = 16'd32;  // header, IV and ICV
  localparam logic [7:0] Udp = 8'd17, EspProtocol = 8'd50;

  // What a frame is, apart from the policy.
  typedef enum logic [2:0] {Malformed, Plain, Esp, EspFragment, HostOwn} kind_e;
  typedef struct packed {
    kind_e       kind;
    logic        too_short;  // or not a multiple of 4 bytes
    logic [7:0]  tos;
    logic [13:0] start;      // word of the frame in which the body begins
    logic [15:0] body;       // bytes
    logic [31:0] spi;
    logic [31:0] seq_lo;
    logic [63:0] iv;
  } facts_t;

  parse_t parse;
  facts_t parsed, facts;
  logic encap;
  logic [15:0] udp_bytes, esp_bytes, upper_bytes;
  logic [5:0][31:0] front;
  always_comb begin
    front       = parse.front;
    encap       = parse.protocol == Udp && parse.ports_known && parse.destination_port == EncapPort;
    upper_bytes = parse.bytes - parse.upper;
    udp_bytes   = front[4][31:16];
    esp_bytes   = encap ? udp_bytes - 16'd8 : upper_bytes;
    parsed.tos       = parse.tos;
    parsed.start     = parse.upper[15:2] + (encap ? 14'd6 : 14'd4);
    parsed.body      = esp_bytes - EspOverhead;
    parsed.too_short = esp_bytes < EspOverhead + 16'd4 || esp_bytes[1:0] != '0;
    parsed.spi       = encap ? front[3] : front[5];
    parsed.seq_lo    = encap ? front[2] : front[4];
    parsed.iv        = encap ? {front[1], front[0]} : {front[3], front[2]};
    parsed.kind      = Plain;
    if (parse.malformed) begin
      parsed.kind = Malformed;
    end else if (encap) begin
      // RFC 3948 §2.2 and §2.3: IKE behind four zero bytes, keepalives of one byte. Both are the host's.
      if (parse.fragment) parsed.kind = EspFragment;
      else if (upper_bytes < 16'd8 || udp_bytes < 16'd8 || udp_bytes > upper_bytes) parsed.kind = Malformed;
      else parsed.kind = esp_bytes < 16'd4 || front[3] == '0 ? HostOwn : Esp;
    end else if (parse.protocol == EspProtocol && parse.protocol_known) begin
      parsed.kind = parse.fragment ? EspFragment : Esp;
    end
  end

  // What becomes of the oldest frame.
  policy_result_t result;
  drop_e frame_error;
  fate_t fate;
  always_comb begin
    fate = '0;
    if (frame_error != DropNone) begin
      fate.reason = frame_error;
    end else begin
      unique case (facts.kind)
        Malformed: fate.reason = DropMalformed;
        Esp: begin
          fate.ask    = facts.body + EspOverhead >= 16'd8;  // else it has no sequence number
          fate.reason = DropShort;
        end
        EspFragment: begin
          fate.keep    = exceptions_i;
          fate.to_host = exceptions_i;
          fate.reason  = DropFragment;
        end
        HostOwn: begin
          fate.keep    = 1'b1;
          fate.to_host = 1'b1;
        end
        Plain: begin
          fate.keep    = result.action inside {Bypass, ToHost};
          fate.to_host = result.action == ToHost;
          if (!result.hit) fate.reason = DropNoPolicy;
          else if (result.action == Discard) fate.reason = DropPolicy;
          else if (result.action == Protect) fate.reason = DropNotProtected;
        end
      endcase
    end
  end

  // Where the body begins and the ICV ends.
  logic [15:0] end_word_q;  // behind the ICV
  logic [BeatWidth-1:0] body_first, body_beats;
  always_ff @(posedge clk_i) end_word_q <= 16'(facts.start) + 16'(facts.body >> 2) + 16'd4;
  assign body_first = BeatWidth'(facts.start >> 2);
  assign body_beats = BeatWidth'((end_word_q + 16'd3) >> 2) - body_first;

  logic sa_valid, sa_ready, answer_valid, answer_ready;
  logic job_valid, job_ready, frame_valid, frame_ready, frame_last, aside_valid, front_drop_valid, front_drop_ready;
  logic lookup_valid, lookup_ready, inner_result_valid;
  drop_e refused, front_drop_reason;
  open_sa_t answer, sa;
  block_t frame_data;
  beat_t aside;
  user_t aside_user;
  logic [1:0] merge_ready;
  policy_key_t lookup_key;
  policy_result_t inner_result;
  packet_id_t lookup_id, inner_result_id;

  esp_front #(
    .Outbound(1'b0),
    .Entries(Entries),
    .PolicyPiece(PolicyPiece),
    .MaxBytes(MaxBytes),
    .Beats(Beats),
    .LookupBlock(1'b1),
    .facts_t(facts_t),
    .answer_t(open_sa_t)
  ) u_front (
    .clk_i,
    .rst_ni,
    .enable_i,
    .cfg_valid_i(cfg_policy_valid_i),
    .cfg_ready_o(cfg_policy_ready_o),
    .cfg_row_i,
    .cfg_word_i,
    .cfg_data_i,
    .valid_i,
    .ready_o,
    .beat_i,
    .parse_o(parse),
    .facts_i(parsed),
    .error_o(frame_error),
    .facts_o(facts),
    .result_o(result),
    .fate_i(fate),
    .sa_valid_o(sa_valid),
    .sa_ready_i(sa_ready),
    .answer_valid_i(answer_valid),
    .answer_ready_o(answer_ready),
    .answer_i(answer),
    .refused_i(refused),
    .exception_i(exceptions_i && refused == DropNoSa),
    .job_valid_o(job_valid),
    .job_ready_i(job_ready),
    .answer_o(sa),
    .body_first_i(body_first),
    .body_beats_i(body_beats),
    .body_valid_o(frame_valid),
    .body_ready_i(frame_ready),
    .body_data_o(frame_data),
    .body_last_o(frame_last),
    .aside_valid_o(aside_valid),
    .aside_ready_i(merge_ready[1]),
    .aside_beat_o(aside),
    .aside_user_o(aside_user),
    .drop_valid_o(front_drop_valid),
    .drop_ready_i(front_drop_ready),
    .drop_reason_o(front_drop_reason),
    .other_valid_i(lookup_valid),
    .other_ready_o(lookup_ready),
    .other_key_i(lookup_key),
    .other_id_i(lookup_id),
    .other_valid_o(inner_result_valid),
    .other_result_o(inner_result),
    .other_id_o(inner_result_id)
  );

  logic commit_valid, commit_ready, committed, sa_event_valid;
  drop_e commit_refused;
  logic [15:0] commit_bytes;
  row_t sa_event_row;
  opened_t opened;
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
    .ask_i('{spi: facts.spi, seq_lo: facts.seq_lo, too_short: facts.too_short}),
    .valid_o(answer_valid),
    .ready_i(answer_ready),
    .refused_o(refused),
    .sa_o(answer),
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

  // The next packet's job waits here, so that its frame is read ahead.
  logic next_valid, next_ready;
  open_job_t job, next;
  assign job = '{
      sa: sa,
      spi: facts.spi,
      iv: facts.iv,
      tos: facts.tos,
      shift: facts.start[1:0],
      bytes: facts.body
  };
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
    .valid_i(frame_valid),
    .ready_o(frame_ready),
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

  logic cipher_valid, cipher_ready, plain_valid, plain_ready, tag_valid;
  beat_t cipher_out, plain;
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
    .out_valid_o(cipher_valid),
    .out_ready_i(cipher_ready),
    .out_o(cipher_out),
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
    .valid_i(cipher_valid),
    .ready_o(cipher_ready),
    .data_i (cipher_out),
    .valid_o(plain_valid),
    .ready_i(plain_ready),
    .data_o (plain)
  );

  logic inner_valid, verdict_drop_valid, verdict_drop_ready;
  beat_t inner;
  user_t inner_user;
  drop_e verdict_drop_reason;
  esp_verdict #(
    .MaxBytes(MaxBytes),
    .Beats(Beats)
  ) u_verdict (
    .clk_i,
    .rst_ni,
    .valid_i(plain_valid),
    .ready_o(plain_ready),
    .beat_i(plain),
    .opened_valid_i(opened_valid),
    .opened_i(opened),
    .tag_valid_i(tag_valid),
    .tag_ok_i(tag.ok),
    .tag_id_i(tag.id),
    .done_o(finished),
    .lookup_valid_o(lookup_valid),
    .lookup_ready_i(lookup_ready),
    .lookup_key_o(lookup_key),
    .lookup_id_o(lookup_id),
    .result_valid_i(inner_result_valid),
    .result_i(inner_result),
    .result_id_i(inner_result_id),
    .commit_valid_o(commit_valid),
    .commit_ready_i(commit_ready),
    .commit_bytes_o(commit_bytes),
    .committed_i(committed),
    .commit_refused_i(commit_refused),
    .valid_o(inner_valid),
    .ready_i(merge_ready[0]),
    .beat_o(inner),
    .user_o(inner_user),
    .drop_valid_o(verdict_drop_valid),
    .drop_ready_i(verdict_drop_ready),
    .drop_reason_o(verdict_drop_reason)
  );

  logic left;
  logic [15:0] left_bytes;
  frame_merge u_merge (
    .clk_i,
    .rst_ni,
    .valid_i({aside_valid, inner_valid}),
    .ready_o(merge_ready),
    .beat_i({aside, inner}),
    .user_i({aside_user, inner_user}),
    .valid_o,
    .ready_i,
    .beat_o,
    .user_o,
    .left_o(left),
    .left_bytes_o(left_bytes)
  );

  // One a cycle: drops wait.
  assign verdict_drop_ready = !left;
  assign front_drop_ready   = !left && !verdict_drop_valid;
  assign count_valid_o      = left || verdict_drop_valid || front_drop_valid;
  assign count_reason_o     = left ? DropNone : verdict_drop_valid ? verdict_drop_reason : front_drop_reason;
  assign count_bytes_o      = left_bytes;

  assign event_valid_o = sa_event_valid;
  assign event_o       = EventHard;
  assign event_row_o   = sa_event_row;

  // A packet's tag comes before its body leaves.
  if ((MaxBytes + 20) / 16 > OutDepth - 64) begin : g_too_shallow
    $error("OutDepth must be 64 beats more than a packet of MaxBytes takes");
  end
endmodule
