// The outbound lane: IP packets come in, ESP in tunnel mode leaves (and what bypasses, and what is for the host).
//
//   frame_fifo + ip_parser -> policy -> sa_out -> esp_encap -> esp_cipher -> esp_assemble --> out
//        |                                                                                     ^
//        +---------- bypass, to the host ------------------------------------------------------+
//
// Protected packets keep their order, and so do the others; these may overtake those.
module esp_out #(
  parameter int unsigned Entries   = 64,    // of the policy
  parameter int unsigned Rows      = 1024,  // of the SAD
  parameter int unsigned HmacUnits = 0,     // 0: AES-GCM only
  parameter bit          Gcm       = 1'b1,  // 0: AES-CTR with HMAC only
  parameter int unsigned MaxBytes  = 2048,  // of a frame
  parameter int unsigned Beats     = 512,   // of the frame buffer
  parameter int unsigned OutDepth  = Beats, // behind the cipher
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
  input  logic                 exceptions_i, // what lacks an SA or is too big goes to the host
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

  // What travels with a frame that does not go to the cipher.
  typedef struct packed {
    logic       aside;
    logic [3:0] rest;  // bytes of its last beat, 0: 16
    user_t      user;
  } tag_t;

  // In.
  logic entry_valid, take_valid, take_ready;
  drop_e entry_error;
  logic [BeatWidth-1:0] take_beats, frame_beats_q;
  tag_t take_tag, frame_tag;
  logic frame_valid, frame_ready, frame_last;
  block_t frame_data;
  logic fifo_ready, taken_in;
  assign ready_o  = fifo_ready && enable_i;
  assign taken_in = valid_i && ready_o;

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
    .take_first_i('0),
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
    .valid_i(taken_in),
    .beat_i,
    .done_o (parse_done),
    .parse_o(parse)
  );

  // Each frame is looked up, in order; what is malformed too, to no effect.
  typedef struct packed {
    logic        malformed;
    logic        v6;
    logic        dont_fragment;
    logic [7:0]  tos;
    logic [19:0] flow_label;
    logic [15:0] bytes;
  } brief_t;
  typedef struct packed {
    policy_key_t key;
    brief_t      brief;
  } asked_t;
  asked_t asked_in, asked;
  brief_t brief;
  logic asked_valid, asked_ready, brief_valid, brief_ready, result_valid, policy_ready, answer_valid, decided;
  policy_result_t result, answer;

  assign asked_in.key   = policy_key(parse, 1'b1, 1'b0);
  assign asked_in.brief = '{
      malformed: parse.malformed,
      v6: parse.v6,
      dont_fragment: parse.dont_fragment,
      tos: parse.tos,
      flow_label: parse.flow_label,
      bytes: parse.bytes
  };

  // Never full: it takes as many as frame_fifo has entries, and two.
  stream_fifo #(
    .Width($bits(asked_t)),
    .Depth(2 * Frames),
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
  assign asked_ready = policy_ready && brief_ready;

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
    .valid_i(asked_valid && brief_ready),
    .ready_o(policy_ready),
    .key_i(asked.key),
    .valid_o(answer_valid),
    .result_o(answer)
  );

  stream_fifo #(
    .Width($bits(brief_t)),
    .Depth(Frames)
  ) u_briefs (
    .clk_i,
    .rst_ni,
    .valid_i(asked_valid && policy_ready),
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
    .valid_i(answer_valid),
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
  logic sa_valid, sa_ready, sa_answer_valid, sa_answer_ready;
  drop_e refused;
  seal_job_t job, job_q;
  seal_ask_t ask;
  logic job_valid, job_ready;
  logic drop_taken, sa_event_valid;
  event_e sa_event;

  assign ask = '{
      row: result.target,
      generation: result.generation,
      v6: brief.v6,
      dont_fragment: brief.dont_fragment,
      tos: brief.tos,
      flow_label: brief.flow_label,
      bytes: brief.bytes
  };
  assign sa_valid = state_q == Ask;

  sa_out #(
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
    .ask_i(ask),
    .valid_o(sa_answer_valid),
    .ready_i(sa_answer_ready),
    .refused_o(refused),
    .job_o(job),
    .event_valid_o(sa_event_valid),
    .event_o(sa_event)
  );

  logic exception;
  assign exception = exceptions_i && refused inside {DropNoSa, DropTooBig};

  // The job leaves when the frame does.
  assign take_valid = state_q == Take && (aside_q || !keep_q || job_ready);
  assign job_valid  = state_q == Take && keep_q && !aside_q && take_ready;
  assign take_beats = keep_q ? frame_beats_q : '0;
  assign take_tag = '{
      aside: aside_q,
      rest: brief.bytes[3:0],
      user: '{unused: '0, row: result.target, protect: 1'b0, reason: reason_q, to_host: to_host_q}
  };
  assign sa_answer_ready = state_q == Answered;
  assign decided = (state_q == Take && keep_q && take_valid && take_ready) || (state_q == Count && drop_taken);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q <= Look;
    end else begin
      unique case (state_q)
        Look: begin
          if (brief_valid && result_valid && entry_valid) begin
            state_q <= entry_error == DropNone && !brief.malformed && result.hit && result.action == Protect
                       ? Ask : Take;
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
      frame_beats_q <= BeatWidth'((brief.bytes + 16'd15) >> 4);
      keep_q        <= 1'b0;
      aside_q       <= 1'b0;
      to_host_q     <= 1'b0;
      reason_q      <= DropNone;
      if (entry_error != DropNone) begin
        reason_q <= entry_error;
      end else if (brief.malformed) begin
        reason_q <= DropMalformed;
      end else if (!result.hit) begin
        reason_q <= DropNoPolicy;
      end else if (result.action == Discard) begin
        reason_q <= DropPolicy;
      end else begin
        keep_q    <= 1'b1;
        aside_q   <= result.action != Protect;
        to_host_q <= result.action == ToHost;
      end
    end
    if (state_q == Answered && sa_answer_valid) begin
      job_q     <= job;
      reason_q  <= refused;
      keep_q    <= refused == DropNone || exception;
      aside_q   <= exception;
      to_host_q <= exception;
    end
  end

  // To the cipher, or aside.
  logic encap_ready, aside_ready, aside_valid;
  logic [1:0] merge_ready;
  beat_t aside_beat, aside_out;
  user_t aside_user;
  assign frame_ready      = frame_tag.aside ? aside_ready : encap_ready;
  assign aside_beat.data  = frame_data;
  assign aside_beat.keep  = frame_last && frame_tag.rest != '0 ? ~('1 << frame_tag.rest) : '1;
  assign aside_beat.last  = frame_last;

  stream_fifo #(
    .Width($bits(beat_t) + $bits(user_t)),
    .Depth(Beats / 4),
    .Extra(1'b1)
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

  logic around_valid, around_ready, made_cmd_valid, made_cmd_ready, made_body_valid, made_body_ready;
  logic cmd_valid, cmd_ready, body_valid, body_ready;
  seal_job_t around;
  cipher_cmd_t made_cmd, cmd;
  beat_t made_body, body;
  esp_encap u_encap (
    .clk_i,
    .rst_ni,
    .job_valid_i(job_valid),
    .job_ready_o(job_ready),
    .job_i(job_q),
    .valid_i(frame_valid && !frame_tag.aside),
    .ready_o(encap_ready),
    .data_i(frame_data),
    .last_i(frame_last),
    .around_valid_o(around_valid),
    .around_ready_i(around_ready),
    .around_o(around),
    .cmd_valid_o(made_cmd_valid),
    .cmd_ready_i(made_cmd_ready),
    .cmd_o(made_cmd),
    .body_valid_o(made_body_valid),
    .body_ready_i(made_body_ready),
    .body_o(made_body)
  );
  stream_slice #(
    .Width($bits(cipher_cmd_t))
  ) u_cmd_slice (
    .clk_i,
    .rst_ni,
    .valid_i(made_cmd_valid),
    .ready_o(made_cmd_ready),
    .data_i (made_cmd),
    .valid_o(cmd_valid),
    .ready_i(cmd_ready),
    .data_o (cmd)
  );
  stream_slice #(
    .Width($bits(beat_t))
  ) u_body_slice (
    .clk_i,
    .rst_ni,
    .valid_i(made_body_valid),
    .ready_o(made_body_ready),
    .data_i (made_body),
    .valid_o(body_valid),
    .ready_i(body_ready),
    .data_o (body)
  );

  logic made_valid, made_ready, sealed_valid, sealed_ready, tag_valid, tag_ready, tap_valid;
  beat_t made, sealed, tap;
  cipher_tag_t tag;
  esp_cipher #(
    .Open(1'b0),
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
    .icv_valid_i(1'b0),
    .icv_ready_o(),
    .icv_i('0),
    .out_valid_o(made_valid),
    .out_ready_i(made_ready),
    .out_o(made),
    .tag_valid_o(tag_valid),
    .tag_ready_i(tag_ready),
    .tag_o(tag),
    .tap_valid_o(tap_valid),
    .tap_o(tap)
  );

  stream_slice #(
    .Width($bits(beat_t))
  ) u_sealed_slice (
    .clk_i,
    .rst_ni,
    .valid_i(made_valid),
    .ready_o(made_ready),
    .data_i (made),
    .valid_o(sealed_valid),
    .ready_i(sealed_ready),
    .data_o (sealed)
  );

  logic whole_valid, whole_ready, packet_valid, left, gone, gone_q;
  logic [15:0] left_bytes;
  beat_t whole, packet;
  user_t whole_user, packet_user;
  esp_assemble u_assemble (
    .clk_i,
    .rst_ni,
    .around_valid_i(around_valid),
    .around_ready_o(around_ready),
    .around_i(around),
    .tap_valid_i(tap_valid),
    .tap_i(tap),
    .body_valid_i(sealed_valid),
    .body_ready_o(sealed_ready),
    .body_i(sealed),
    .tag_valid_i(tag_valid),
    .tag_ready_o(tag_ready),
    .tag_i(tag),
    .valid_o(whole_valid),
    .ready_i(whole_ready),
    .beat_o(whole),
    .user_o(whole_user),
    .dropped_o(gone)
  );
  stream_slice #(
    .Width($bits(beat_t) + $bits(user_t))
  ) u_packet_slice (
    .clk_i,
    .rst_ni,
    .valid_i(whole_valid),
    .ready_o(whole_ready),
    .data_i ({whole, whole_user}),
    .valid_o(packet_valid),
    .ready_i(merge_ready[0]),
    .data_o ({packet, packet_user})
  );

  frame_merge u_merge (
    .clk_i,
    .rst_ni,
    .valid_i({aside_valid, packet_valid}),
    .ready_o(merge_ready),
    .beat_i({aside_out, packet}),
    .user_i({aside_user, packet_user}),
    .valid_o,
    .ready_i,
    .beat_o,
    .user_o,
    .left_o(left),
    .left_bytes_o(left_bytes)
  );

  // A drop waits where a frame leaves in the same cycle; one for want of the key goes first, and the next is cycles away.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) gone_q <= 1'b0;
    else gone_q <= gone || (gone_q && left);
  end
  assign drop_taken     = state_q == Count && !left && !gone_q;
  assign count_valid_o  = left || gone_q || state_q == Count;
  assign count_reason_o = left ? DropNone : gone_q ? DropNoSa : reason_q;
  assign count_bytes_o  = left_bytes;

  // Software hears of an SA that is wanted, and of the SAs' limits.
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) event_valid_o <= 1'b0;
    else event_valid_o <= sa_event_valid || (state_q == Answered && sa_answer_valid && refused == DropNoSa);
  end
  always_ff @(posedge clk_i) begin
    event_o     <= sa_event_valid ? sa_event : EventNoSa;
    event_row_o <= result.target;
  end

  // A packet's tag comes before its body leaves.
  if ((MaxBytes + 20) / 16 > OutDepth - 64) begin : g_too_shallow
    $error("OutDepth must be 64 beats more than a packet of MaxBytes takes");
  end
endmodule
