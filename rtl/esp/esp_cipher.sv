// Ciphers and authenticates packets: AES-GCM (RFC 4106), and AES-CTR with HMAC-SHA-256 (RFC 3686, RFC 4868).
//
// A packet is a row of slots, one a cycle: a header (GCM: the additional data, while AES makes the mask of the tag; CTR: SPI,
// sequence number and IV for HMAC), its body, a trailer (GCM: the lengths; CTR: the high half of the sequence number). The
// AES pipeline never waits: a slot goes in when there is room for what comes out. Every packet brings its key along; headers
// are at least 15 cycles apart.
//
// The key is read in the cycles behind the header, and then whose it is: the row may have changed since the packet's SA was
// looked up. What another key was used for is not ok, and must not leave.
//
// The body waits in a FIFO of OutDepth beats, so a packet's tag can be had before its body is taken, as long as the body is
// not longer than OutDepth - 64 beats.
module esp_cipher
  import aes_pkg::*, esp_pkg::*;
#(
  parameter bit          Open         = 1'b0,  // decrypt and compare the ICV; else encrypt
  parameter int unsigned Rows         = 1024,  // of the key store
  parameter int unsigned HmacUnits    = 0,     // 0: every suite is taken for GCM
  parameter bit          Gcm          = 1'b1,  // 0: every suite is taken for CTR with HMAC
  parameter int unsigned OutDepth     = 1024,  // beats, a power of two
  parameter int unsigned RoundLatency = 2,
  parameter int unsigned SboxKind     = 0,
  parameter int unsigned GhashStages  = 3,     // 2 to 4
  parameter int unsigned GhashLeaf    = 32
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        cfg_valid_i,
  output logic        cfg_ready_o,
  input  logic [ 9:0] cfg_row_i,
  input  logic [ 5:0] cfg_word_i,
  input  logic [31:0] cfg_data_i,
  input  logic        cmd_valid_i,
  output logic        cmd_ready_o,
  input  cipher_cmd_t cmd_i,
  // As many full beats as cmd_i.len says, the last one short. In mid-packet a missing beat costs GhashStages cycles.
  input  logic        body_valid_i,
  output logic        body_ready_o,
  input  beat_t       body_i,
  // Open: what the packet's ICV should be, one a packet.
  input  logic         icv_valid_i,
  output logic         icv_ready_o,
  input  logic [127:0] icv_i,
  output logic        out_valid_o,
  input  logic        out_ready_i,
  output beat_t       out_o,
  // The body as it goes into the FIFO.
  output logic        tap_valid_o,
  output beat_t       tap_o,
  // Open: icv is zero, ok tells.
  output logic        tag_valid_o,
  input  logic        tag_ready_i,
  output cipher_tag_t tag_o
);
  if (!Gcm && HmacUnits == 0) begin : g_no_suite
    $error("a cipher without a suite: Gcm or HmacUnits must be there");
  end

  localparam int unsigned AesLatency = 3 + Rounds * RoundLatency;
  localparam int unsigned Gap = 15;
  localparam int unsigned Tags = 16;
  localparam int unsigned MsgDepth = 128;
  localparam int unsigned LeftWidth = $clog2(GhashStages + 1);
  localparam int unsigned CreditWidth = $clog2(OutDepth + 1);
  localparam int unsigned MsgWidth = $clog2(MsgDepth + 1);

  // ---- slots go in

  typedef enum logic [1:0] {
    Header,
    Body,
    Trailer
  } state_e;

  state_e state_q;
  cipher_cmd_t cmd_q;
  logic hmac_q;                    // of the packet in cmd_q
  logic [12:0] left_q;             // beats of the body that have not gone in
  logic [3:0] gap_q;
  logic [1:0] hold_q;
  logic [4:0] tags_q;              // packets whose tags have not been taken
  logic [CreditWidth-1:0] room_q;  // in the output FIFO
  // Which slots are on their way. Index i: the slot went in i + 1 cycles ago.
  localparam int unsigned Through = 2 + AesLatency;
  logic [Through:0] heads_q, bodies_q, trailers_q;
  logic header, body, trailer, room_ok_q, msg_ok, state_ok, tags_ok_q, tag_taken_q, out_taken_q;
  logic hmac, go;

  assign hmac         = !Gcm || (HmacUnits != 0 && cmd_i.suite[1]);
  assign cmd_ready_o  = state_q == Header && gap_q == '0 && cfg_ready_o && tags_ok_q && msg_ok && state_ok;
  assign go           = hold_q == '0 && (!hmac_q || msg_ok);
  assign body_ready_o = state_q == Body && go && room_ok_q;
  assign header       = cmd_ready_o && cmd_valid_i;
  assign body         = body_ready_o && body_valid_i;
  assign trailer      = state_q == Trailer && go;

  logic [12:0] beats;
  assign beats = 13'((17'(cmd_i.len) + 17'd15) >> 4);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q   <= Header;
      gap_q     <= '0;
      hold_q    <= '0;
      tags_q    <= '0;
      tags_ok_q <= 1'b0;
      room_q    <= CreditWidth'(OutDepth);
      room_ok_q <= 1'b0;
      tag_taken_q <= 1'b0;
      out_taken_q <= 1'b0;
    end else begin
      if (header) state_q <= Body;
      else if (body && left_q == 13'd1) state_q <= Trailer;
      else if (trailer) state_q <= Header;

      if (header) gap_q <= 4'(Gap - 1);
      else if (gap_q != '0) gap_q <= gap_q - 1'b1;

      // GHASH wants gaps of whole rounds within a packet.
      if (hold_q != '0) hold_q <= hold_q - 1'b1;
      else if (Gcm && state_q != Header && !body && !trailer) hold_q <= 2'(GhashStages - 1);

      // What leaves and what goes in counts a cycle later: it is known late in its own.
      tag_taken_q <= tag_valid_o && tag_ready_i;
      out_taken_q <= out_valid_o && out_ready_i;
      tags_q    <= tags_q + 5'(heads_q[0]) - 5'(tag_taken_q);
      tags_ok_q <= tags_q < 5'(Tags);
      // Two slots may go in before the comparison with what is left without them is seen.
      room_q    <= room_q - CreditWidth'(bodies_q[0]) + CreditWidth'(out_taken_q);
      room_ok_q <= room_q > CreditWidth'(2);
    end
  end

  always_ff @(posedge clk_i) begin
    if (header) begin
      cmd_q  <= cmd_i;
      hmac_q <= hmac;
      left_q <= beats;
    end else if (body) begin
      left_q <= left_q - 1'b1;
    end
  end

  // ---- slots on their way; a reset clears these, not their data

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      heads_q    <= '0;
      bodies_q   <= '0;
      trailers_q <= '0;
    end else begin
      heads_q    <= {heads_q[Through-1:0], header};
      bodies_q   <= {bodies_q[Through-1:0], body};
      trailers_q <= {trailers_q[Through-1:0], trailer};
    end
  end

  // ---- first cycle: the slot's data; the key store is read

  // Of the four words of a beat the first is always there.
  function automatic block_t words_mask(logic [2:0] there);
    return {32'hffff_ffff, {32{there[2]}}, {32{there[1]}}, {32{there[0]}}};
  endfunction

  typedef struct packed {
    block_t               data;
    logic [2:0]           words;      // which of the last three words of a body are there
    logic                 last;
    logic                 hmac;
    logic [LeftWidth-1:0] left;       // of GHASH
    logic [2:0]           msg_words;  // of HMAC's message
    logic                 msg_last;
  } slot_t;

  slot_t slot_d, slot_q;
  block_t body_q, body_data, header_data, trailer_data;
  logic last_q;
  logic [2:0] words;

  always_ff @(posedge clk_i) begin
    body_q <= to_block(body_i.data);
    last_q <= left_q == 13'd1;
  end

  always_comb begin
    case (cmd_q.len[3:2])
      2'd0: words = 3'b111;
      2'd1: words = 3'b000;
      2'd2: words = 3'b100;
      default: words = 3'b110;
    endcase
    if (!last_q) words = 3'b111;
  end

  // The high half of the sequence number ends HMAC's message (RFC 4303, 2.2.1): in the last beat if there is room.
  logic merged;
  assign merged = hmac_q && cmd_q.esn && last_q && !words[0];

  always_comb begin
    header_data = {cmd_q.spi, cmd_q.esn ? {cmd_q.seq_hi, cmd_q.seq_lo} : {cmd_q.seq_lo, 32'b0}, 32'b0};
    if (hmac_q) header_data = {cmd_q.spi, cmd_q.seq_lo, cmd_q.iv};
    trailer_data = {57'b0, cmd_q.esn ? 7'd96 : 7'd64, 45'b0, cmd_q.len, 3'b0};
    if (hmac_q) trailer_data = {cmd_q.seq_hi, 96'b0};
    body_data = body_q & words_mask(words);
    if (merged) body_data |= {32'b0, {3{cmd_q.seq_hi}}} & words_mask({1'b1, words[2:1]}) & ~words_mask(words);

    slot_d.data  = heads_q[0] ? header_data : trailers_q[0] ? trailer_data : body_data;
    slot_d.words = words;
    slot_d.last  = last_q;
    slot_d.hmac  = hmac_q;
    // left_q has counted this slot already; the trailer is still to come.
    slot_d.left  = left_q >= 13'(GhashStages - 1) ? LeftWidth'(GhashStages) : LeftWidth'(left_q + 1'b1);
    if (trailers_q[0]) slot_d.left = '0;
    slot_d.msg_last  = 1'b0;
    slot_d.msg_words = 3'd4;
    if (trailers_q[0]) begin
      slot_d.msg_words = cmd_q.esn && cmd_q.len[3:2] == 2'd0 ? 3'd1 : 3'd0;
      slot_d.msg_last  = 1'b1;
    end else if (!heads_q[0] && last_q) begin
      slot_d.msg_words = 3'd1 + 3'(words[2]) + 3'(words[1]) + 3'(words[0]) + 3'(merged);
      slot_d.msg_last  = !cmd_q.esn || merged;
    end
  end
  always_ff @(posedge clk_i) slot_q <= slot_d;

  // The words for authentication are read one after the other.
  logic [1:0] auth_word_q;
  logic [2:0] reading_q;
  logic gcm_word, hmac_word;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) reading_q <= '0;
    else reading_q <= {reading_q[1:0], header || (reading_q[0] && auth_word_q != 2'd3)};
  end
  always_ff @(posedge clk_i) auth_word_q <= header ? '0 : auth_word_q + 1'b1;
  assign gcm_word  = reading_q[2] && !hmac_q;
  assign hmac_word = reading_q[2] && hmac_q;

  block_t key, auth;
  logic [31:0] salt;
  generation_t generation;
  key_store #(
    .Rows(Rows)
  ) u_keys (
    .clk_i,
    .rst_ni,
    .cfg_valid_i,
    .cfg_ready_o,
    .cfg_row_i,
    .cfg_word_i,
    .cfg_data_i,
    .row_i(cmd_q.row),
    .half_i(heads_q[1]),
    .auth_word_i(auth_word_q),
    .key_o(key),
    .auth_o(auth),
    .generation_o(generation),
    .salt_read_i(heads_q[0]),
    .salt_o(salt)
  );

  // Read in the last cycle in which a word for authentication is: all words were of that generation.
  logic ours, ours_valid, ours_next, tag_gone;
  packet_id_t id_next;
  assign ours = generation == cmd_q.generation && generation != '0;
  small_fifo #(
    .Width($bits(packet_id_t) + 1),
    .Depth(Tags),
    .NeverFull(1'b1)
  ) u_ours (
    .clk_i,
    .rst_ni,
    .valid_i(heads_q[5]),
    .ready_o(),
    .data_i({cmd_q.id, ours}),
    .valid_o(ours_valid),
    .ready_i(tag_gone),
    .data_o({id_next, ours_next}),
    .count_o()
  );

  // ---- AES, and the slots' data beside it

  logic [1:0][63:0] iv_q;
  logic [12:0] counter_q, count_q;
  always_ff @(posedge clk_i) begin
    iv_q    <= {iv_q[0], cmd_q.iv};
    count_q <= counter_q;
    if (heads_q[0]) counter_q <= {12'b0, !hmac_q};
    else if (bodies_q[0]) counter_q <= counter_q + 1'b1;
  end

  block_t stream;
  aes_pipe #(
    .RoundLatency(RoundLatency),
    .SboxKind(SboxKind)
  ) u_aes (
    .clk_i,
    .rst_ni,
    .start_i(heads_q[2]),
    .aes128_i(cmd_q.suite[0]),
    .raw_i(key),
    .block_i({salt, iv_q[1], 19'b0, count_q}),
    .block_o(stream)
  );

  slot_t slot;
  delay_line #(
    .Width($bits(slot_t)),
    .Depth(AesLatency + 1)
  ) u_slots (
    .clk_i,
    .rst_ni,
    .data_i(slot_q),
    .data_o(slot)
  );

  // ---- what came out

  logic head, head_qq, body_qq, trailer_qq;
  slot_t done_q;
  block_t text, text_q, auth_q, mask_q;
  assign head = heads_q[Through];
  assign text = (slot.data ^ stream) & words_mask(slot.words);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      head_qq    <= 1'b0;
      body_qq    <= 1'b0;
      trailer_qq <= 1'b0;
    end else begin
      head_qq    <= head;
      body_qq    <= bodies_q[Through];
      trailer_qq <= trailers_q[Through];
    end
  end

  always_ff @(posedge clk_i) begin
    done_q <= slot;
    text_q <= text;
    mask_q <= stream;
    auth_q <= slot.data ^ (Open || !bodies_q[Through] ? '0 : stream & words_mask(slot.words));
  end

  function automatic logic [15:0] words_keep(logic [2:0] there);
    return {{4{there[0]}}, {4{there[1]}}, {4{there[2]}}, 4'hf};
  endfunction

  assign tap_valid_o = body_qq;
  assign tap_o       = '{data: from_block(text_q), keep: words_keep(done_q.words), last: done_q.last};

  logic [2:0] out_words;
  stream_fifo #(
    .Width(132),
    .Depth(OutDepth),
    .Extra(1'b1),
    .NeverFull(1'b1)
  ) u_out (
    .clk_i,
    .rst_ni,
    .valid_i(body_qq),
    .ready_o(),
    .data_i({tap_o.data, done_q.words, done_q.last}),
    .valid_o(out_valid_o),
    .ready_i(out_ready_i),
    .data_o({out_o.data, out_words, out_o.last}),
    .count_o()
  );
  assign out_o.keep = words_keep(out_words);

  // ---- GHASH

  logic gcm_tag_valid, gcm_tag_ready;
  block_t gcm_tag;

  if (Gcm) begin : g_gcm
    // The powers of H wait until their packet is here: in a FIFO, then all of them in registers.
    logic power_valid, load, full_q;
    logic [1:0] power_q;
    block_t power, powers[4];
    small_fifo #(
      .Width(128),
      .Depth(16),
      .NeverFull(1'b1)
    ) u_powers (
      .clk_i,
      .rst_ni,
      .valid_i(gcm_word),
      .ready_o(),
      .data_i(auth),
      .valid_o(power_valid),
      .ready_i(!full_q),
      .data_o(power),
      .count_o()
    );
    assign load = head && !slot.hmac;
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        full_q  <= 1'b0;
        power_q <= '0;
      end else begin
        if (power_valid && !full_q) begin
          full_q  <= power_q == 2'd3;
          power_q <= power_q + 1'b1;
        end else if (load) begin
          full_q <= 1'b0;
        end
      end
    end
    always_ff @(posedge clk_i) if (!full_q) powers[power_q] <= power;

    logic hash_valid, mask_valid;
    block_t hash, mask;
    ghash #(
      .Stages(GhashStages),
      .Leaf(GhashLeaf)
    ) u_ghash (
      .clk_i,
      .rst_ni,
      .load_i(load),
      .powers_i(powers[0:GhashStages-1]),
      .valid_i((head_qq || body_qq || trailer_qq) && !done_q.hmac),
      .first_i(head_qq),
      .left_i(done_q.left),
      .block_i(auth_q),
      .valid_o(hash_valid),
      .hash_o(hash)
    );

    small_fifo #(
      .Width(128),
      .Depth(4),
      .NeverFull(1'b1)
    ) u_masks (
      .clk_i,
      .rst_ni,
      .valid_i(head_qq && !done_q.hmac),
      .ready_o(),
      .data_i(mask_q),
      .valid_o(mask_valid),
      .ready_i(hash_valid),
      .data_o(mask),
      .count_o()
    );

    logic checks_q = 1'b0;  // from the first reset on
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        checks_q <= 1'b1;
      end else if (checks_q) begin
        assert (!hash_valid || mask_valid)
        else $error("a tag comes before its mask");
      end
    end

    small_fifo #(
      .Width(128),
      .Depth(Tags),
      .NeverFull(1'b1)
    ) u_tags (
      .clk_i,
      .rst_ni,
      .valid_i(hash_valid),
      .ready_o(),
      .data_i(hash ^ mask),
      .valid_o(gcm_tag_valid),
      .ready_i(gcm_tag_ready),
      .data_o(gcm_tag),
      .count_o()
    );
  end else begin : g_hmac_only
    assign gcm_tag_valid = 1'b0;
    assign gcm_tag       = '0;
  end

  // ---- HMAC; tags of both kinds in the order of their packets

  logic tag_valid, tag_ready;
  block_t tag;

  if (HmacUnits == 0) begin : g_gcm_only
    assign msg_ok        = 1'b1;
    assign state_ok      = 1'b1;
    assign tag_valid     = gcm_tag_valid;
    assign tag           = gcm_tag;
    assign gcm_tag_ready = tag_ready;
  end else begin : g_hmac
    logic state_valid, state_ready;
    logic [4:0] states;
    logic [127:0] state;
    small_fifo #(
      .Width(128),
      .Depth(16),
      .NeverFull(1'b1)
    ) u_states (
      .clk_i,
      .rst_ni,
      .valid_i(hmac_word),
      .ready_o(),
      .data_i(auth),
      .valid_o(state_valid),
      .ready_i(state_ready),
      .data_o(state),
      .count_o(states)
    );
    // The words of the packet before are all there: its header was Gap cycles ago.
    assign state_ok = states <= 5'd12;

    logic msg_put, msg_valid, msg_ready, msg_taken, last;
    logic [2:0] msg_words;
    logic [MsgWidth-1:0] msg_room_q;
    logic msg_ok_q;
    beat_t msg;
    assign msg_put = (head_qq || body_qq || (trailer_qq && done_q.msg_words != '0)) && done_q.hmac;
    stream_fifo #(
      .Width(132),
      .Depth(MsgDepth),
      .NeverFull(1'b1)
    ) u_msg (
      .clk_i,
      .rst_ni,
      .valid_i(msg_put),
      .ready_o(),
      .data_i({from_block(auth_q), done_q.msg_words, done_q.msg_last}),
      .valid_o(msg_valid),
      .ready_i(msg_ready),
      .data_o({msg.data, msg_words, last}),
      .count_o()
    );
    assign msg.keep  = 16'((32'd1 << {msg_words, 2'b0}) - 1);
    assign msg.last  = last;
    assign msg_taken = msg_valid && msg_ready;
    assign msg_ok    = msg_ok_q;

    // A trailer without a word gives its room back when it comes out.
    logic unused_trailer;
    assign unused_trailer = trailer_qq && done_q.hmac && done_q.msg_words == '0;
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        msg_room_q <= MsgWidth'(MsgDepth);
        msg_ok_q   <= 1'b0;
      end else begin
        msg_room_q <= msg_room_q - MsgWidth'((header && hmac) || ((body || trailer) && hmac_q)) +
                      MsgWidth'(msg_taken) + MsgWidth'(unused_trailer);
        msg_ok_q   <= msg_room_q > MsgWidth'(2);
      end
    end

    logic hmac_tag_valid, hmac_next, order_valid;
    block_t hmac_tag;
    hmac_pool #(
      .Units(HmacUnits)
    ) u_hmac (
      .clk_i,
      .rst_ni,
      .state_valid_i(state_valid),
      .state_ready_o(state_ready),
      .state_i(state),
      .msg_valid_i(msg_valid),
      .msg_ready_o(msg_ready),
      .msg_i(msg),
      .tag_valid_o(hmac_tag_valid),
      .tag_ready_i(tag_ready && hmac_next && order_valid),
      .tag_o(hmac_tag)
    );

      small_fifo #(
      .Width(1),
      .Depth(Tags),
      .NeverFull(1'b1)
    ) u_order (
      .clk_i,
      .rst_ni,
      .valid_i(header),
      .ready_o(),
      .data_i(hmac),
      .valid_o(order_valid),
      .ready_i(tag_valid && tag_ready),
      .data_o(hmac_next),
      .count_o()
    );
    assign tag_valid     = order_valid && (hmac_next ? hmac_tag_valid : gcm_tag_valid);
    assign tag           = hmac_next ? hmac_tag : gcm_tag;
    assign gcm_tag_ready = tag_ready && order_valid && !hmac_next;
  end

  // ---- the tag goes out, or is compared

  assign tag_gone = tag_valid && tag_ready;

  if (Open) begin : g_open
    logic icv_valid, differs_valid_q, ours_q, ok_valid_q, ok_q;
    packet_id_t differs_id_q, ok_id_q;
    logic [127:0] icv;
    block_t differs_q;
    small_fifo #(
      .Width(128),
      .Depth(16)
    ) u_icvs (
      .clk_i,
      .rst_ni,
      .valid_i(icv_valid_i),
      .ready_o(icv_ready_o),
      .data_i(icv_i),
      .valid_o(icv_valid),
      .ready_i(tag_gone),
      .data_o(icv),
      .count_o()
    );
    // All bits are compared in the same two cycles.
    logic ok_free;
    assign ok_free   = !ok_valid_q || tag_ready_i;
    assign tag_ready = icv_valid && (!differs_valid_q || ok_free);
    always_ff @(posedge clk_i or negedge rst_ni) begin
      if (!rst_ni) begin
        differs_valid_q <= 1'b0;
        ok_valid_q      <= 1'b0;
      end else begin
        differs_valid_q <= tag_gone || (differs_valid_q && !ok_free);
        ok_valid_q      <= differs_valid_q || !ok_free;
      end
    end
    always_ff @(posedge clk_i) begin
      if (tag_gone) begin
        differs_q <= tag ^ to_block(icv);
        ours_q    <= ours_next;
        differs_id_q <= id_next;
      end
      if (ok_free) begin
        ok_q    <= differs_q == '0 && ours_q;
        ok_id_q <= differs_id_q;
      end
    end
    assign tag_valid_o = ok_valid_q;
    assign tag_o       = '{id: ok_id_q, icv: '0, ok: ok_q};
  end else begin : g_seal
    assign icv_ready_o = 1'b0;
    assign tag_ready   = tag_ready_i;
    assign tag_valid_o = tag_valid;
    assign tag_o       = '{id: id_next, icv: from_block(tag), ok: ours_next};
  end

  logic checks_q = 1'b0;  // from the first reset on
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      checks_q <= 1'b1;
    end else if (checks_q) begin
      assert (!body || body_i.last == (left_q == 13'd1))
      else $error("the body's length is not the command's");
      assert (!tag_gone || ours_valid)
      else $error("a tag comes before the key's generation is known");
    end
  end

  if (2 ** $clog2(Rows) != Rows || Rows > 1024) begin : g_rows
    $error("Rows must be a power of two, at most 1024");
  end
endmodule
