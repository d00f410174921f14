// An ESP lane for any cipher of ace_cipher: the cipher in counter mode as AES-CTR has it (RFC 3686), and
// HMAC-SHA-256-128 (RFC 4868) over SPI, sequence number, IV and ciphertext (RFC 4303). Frames of words come in and go
// out as docs/ace-cores.md describes them ("The ESP lane").
//
// Only the instance of ace_cipher knows which cipher it is: the lane gives it a key and blocks, and gets blocks.
//
// A packet is opened before its ICV is known to be right, and kept inside until then. If the ICV is wrong, the body is
// overwritten and only the status leaves. All words of the ICV are compared.
//
// wipe_i, for a cycle or longer, forgets keys, states and packets. From its first cycle on nothing is taken and nothing
// is valid, until all memories are overwritten and the hash unit has hashed zeros. The same happens after reset.
module ace_lane
  import ace_lane_pkg::*;
#(
  parameter int unsigned Algorithm = ace_pkg::Rijndael,
  parameter bit LongKeys = 1'b1,  // 0: only keys of 128 bits
  parameter int unsigned BodyWords = 500,  // the longest body, at least 16
  localparam int unsigned AddrWidth = $clog2(BodyWords + HeaderWords + IcvWords)
) (
  input  logic  clk_i,
  input  logic  rst_ni,
  input  logic  wipe_i,
  input  logic  valid_i,
  output logic  ready_o,
  input  word_t data_i,
  input  logic  last_i,
  output logic  valid_o,
  input  logic  ready_i,
  output word_t data_o,
  output logic  last_o,
  output logic  busy_o   // a frame is inside or has begun, or the lane is being wiped
);
  typedef logic [AddrWidth-1:0] addr_t;

  function automatic word_t swapped(word_t w);
    return {w[7:0], w[15:8], w[23:16], w[31:24]};
  endfunction

  // Wiping ends when the memories are overwritten and the hash unit has hashed zeros under zeros.
  typedef enum logic [1:0] {
    HashReset,
    HashCommand,
    HashMessage,
    HashDone
  } flush_e;
  flush_e flush_q;
  logic wiping_q, clear, hash_rst_nq, command_ready, message_ready, icv_valid;
  logic [AddrWidth:0] wipe_at_q;
  logic overwritten_q;
  assign clear = wiping_q || wipe_i;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      wiping_q      <= 1'b1;
      wipe_at_q     <= '0;
      overwritten_q <= 1'b0;
      flush_q       <= HashReset;
      hash_rst_nq   <= 1'b0;
    end else if (wipe_i) begin
      wiping_q      <= 1'b1;
      wipe_at_q     <= '0;
      overwritten_q <= 1'b0;
      flush_q       <= HashReset;
      hash_rst_nq   <= 1'b0;
    end else if (wiping_q) begin
      wipe_at_q     <= wipe_at_q + 1'b1;
      overwritten_q <= overwritten_q || &wipe_at_q;
      hash_rst_nq   <= 1'b1;
      case (flush_q)
        HashReset: flush_q <= HashCommand;
        HashCommand: if (command_ready) flush_q <= HashMessage;
        HashMessage: if (message_ready) flush_q <= HashDone;
        default: if (icv_valid && overwritten_q) wiping_q <= 1'b0;
      endcase
    end
  end

  // Frames in and answers out.
  logic frame_valid, frame_malformed, frame_done, in_busy, out_busy;
  logic read, room, write, answers;
  addr_t read_at_q, write_at;
  word_t word, write_word;
  answer_t answer;
  ace_frame_in #(
    .BodyWords(BodyWords),
    .LongKeys(LongKeys),
    .AddrWidth(AddrWidth)
  ) u_in (
    .clk_i,
    .rst_ni,
    .clear_i(clear),
    .clear_at_i(wipe_at_q),
    .valid_i,
    .ready_o,
    .data_i,
    .last_i,
    .frame_valid_o(frame_valid),
    .frame_malformed_o(frame_malformed),
    .frame_done_i(frame_done),
    .read_i(read),
    .read_at_i(read_at_q),
    .word_o(word),
    .busy_o(in_busy)
  );
  ace_frame_out #(
    .AddrWidth(AddrWidth)
  ) u_out (
    .clk_i,
    .rst_ni,
    .clear_i(clear),
    .clear_at_i(wipe_at_q),
    .room_o(room),
    .write_i(write),
    .write_at_i(write_at),
    .word_i(write_word),
    .answer_i(answers),
    .answer_head_i(answer),
    .valid_o,
    .ready_i,
    .data_o,
    .last_o,
    .busy_o(out_busy)
  );
  assign busy_o = clear || in_busy || out_busy;

  // One frame after the other.
  typedef enum logic [3:0] {
    Idle,
    Head,     // the first word
    Decide,   // what it asks for
    Key,      // the words of a key
    Install,  // the cipher takes it
    Words,    // header and body of a packet
    Tail,     // the high half of the sequence number
    Hash,     // the ICV is being made
    Icv,      // it is sent or compared
    Verdict,
    Erase,    // of what was opened
    Answer
  } state_e;
  state_e state_q, state_d;
  status_e status_q;
  head_t head_q, head;
  addr_t left_q;  // words of the body that are still to come
  addr_t body_at_q;
  logic [1:0] part_q;  // word of the ICV, or of a block
  word_t differs_q, high_q;
  logic keyed_q;
  assign head = head_of(word, BodyWords, LongKeys);

  // Words are read ahead. number_q is that of `word`.
  logic word_valid_q, uses;
  addr_t number_q;
  assign read = state_q != Idle && (!word_valid_q || uses);
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      word_valid_q <= 1'b0;
      read_at_q    <= '0;
      number_q     <= '0;
    end else if (clear || state_d == Idle) begin
      word_valid_q <= 1'b0;
      read_at_q    <= '0;
      number_q     <= '0;
    end else if (read) begin
      word_valid_q <= 1'b1;
      read_at_q    <= read_at_q + 1'b1;
      number_q     <= read_at_q;
    end
  end

  logic [255:0] icv;
  word_t icv_word;
  assign icv_word = icv[255-32*part_q-:32];

  // The cipher. Its key slot is filled by Install; a packet's blocks are nonce, IV and a count from one.
  logic [255:0] key_q, inner_q, outer_q;
  word_t nonce_q;
  word_t [1:0] iv_q;
  addr_t blocks_q;  // that are still to be given
  logic counting_q;
  addr_t count_q;
  logic key_valid, key_ready, block_valid, block_ready, stream_valid, stream_ready;
  ace_pkg::block_t stream;
  word_t stream_word;
  ace_cipher #(
    .Algorithm(Algorithm),
    .Decrypts(1'b0),
    .LongKeys(LongKeys),
    .TagWidth(1)
  ) u_cipher (
    .clk_i,
    .rst_ni,
    .wipe_i,
    .key_valid_i(key_valid),
    .key_ready_o(key_ready),
    .key_i(key_q),
    .key_bits_i(head_q.key_bits),
    .block_valid_i(block_valid),
    .block_ready_o(block_ready),
    .block_i({nonce_q, iv_q[1], iv_q[0], 32'(count_q)}),
    .encrypt_i(1'b1),
    .tag_i(1'b0),
    .out_valid_o(stream_valid),
    .out_ready_i(stream_ready),
    .block_o(stream),
    .tag_o()
  );
  assign key_valid   = state_q == Install && !clear;
  assign block_valid = counting_q && blocks_q != '0 && !clear;
  assign stream_word = stream[127-32*part_q-:32];

  // What becomes of a word of a packet.
  logic is_body, is_high, last_word, goes, hashes, ends_message;
  word_t turned, hashed;
  logic pack_ready;
  assign is_body      = number_q >= addr_t'(HeaderWords);
  assign is_high      = number_q == addr_t'(3);
  assign last_word    = is_body ? left_q == addr_t'(1) : number_q == addr_t'(HeaderWords - 1) && left_q == '0;
  assign turned       = word ^ stream_word;
  assign goes         = state_q == Words && word_valid_q && (is_high || pack_ready) && (!is_body || stream_valid);
  assign hashes       = (goes && !is_high) || (state_q == Tail && pack_ready);
  assign hashed       = state_q == Tail ? high_q : is_body && !head_q.open ? turned : word;
  assign ends_message = state_q == Tail || (last_word && !head_q.esn);
  assign stream_ready = goes && is_body && (part_q == 2'd3 || last_word);

  always_comb begin
    case (state_q)
      Head:    uses = word_valid_q;
      Key:     uses = word_valid_q;
      Words:   uses = goes;
      Icv:     uses = word_valid_q && head_q.open;
      default: uses = 1'b0;
    endcase
  end

  logic icv_goes;
  assign icv_goes = state_q == Icv && (word_valid_q || !head_q.open);
  always_comb begin
    state_d = state_q;
    case (state_q)
      Idle: if (frame_valid && room) state_d = frame_malformed ? Answer : Head;
      Head: if (uses) state_d = Decide;
      Decide: if (command_ready) state_d = head_q.is_key ? Key : keyed_q ? Words : Answer;
      Key: if (uses && number_q == addr_t'(KeyFrameWords - 1)) state_d = Install;
      Install: if (key_ready) state_d = Idle;
      Words: if (goes && last_word) state_d = head_q.esn ? Tail : Hash;
      Tail: if (pack_ready) state_d = Hash;
      Hash: if (icv_valid) state_d = Icv;
      Icv: if (icv_goes && part_q == 2'd3) state_d = head_q.open ? Verdict : Answer;
      Verdict: state_d = differs_q == '0 || head_q.body_words == '0 ? Answer : Erase;
      Erase: if (body_at_q == '0) state_d = Answer;
      default: state_d = Idle;
    endcase
  end
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q    <= Idle;
      keyed_q    <= 1'b0;
      counting_q <= 1'b0;
    end else if (clear) begin
      state_q    <= Idle;
      keyed_q    <= 1'b0;
      counting_q <= 1'b0;
    end else begin
      state_q    <= state_d;
      keyed_q    <= keyed_q || (state_q == Install && key_ready);
      counting_q <= state_q == Words && (counting_q || (goes && number_q == addr_t'(HeaderWords - 1)));
    end
  end
  assign frame_done = state_q != Idle && state_d == Idle;

  always_ff @(posedge clk_i) begin
    if (clear) begin
      {head_q, status_q, left_q, body_at_q, part_q, differs_q, high_q, blocks_q, count_q, iv_q} <= '0;
      {key_q, nonce_q, inner_q, outer_q} <= '0;
    end else begin
      case (state_q)
        Idle: status_q <= Malformed;
        // The word comes late in its cycle out of a block RAM, so it is only kept.
        Head: if (uses) head_q <= head;
        Decide: begin
          status_q  <= head_q.open ? Opened : Sealed;
          if (!keyed_q) status_q <= NoKey;
          left_q    <= addr_t'(head_q.body_words);
          blocks_q  <= addr_t'((head_q.body_words + 14'd3) >> 2);
          count_q   <= addr_t'(1);
          body_at_q <= '0;
          part_q    <= '0;
          differs_q <= '0;
        end
        Key: if (uses) {key_q, nonce_q, inner_q, outer_q} <= {key_q[223:0], nonce_q, inner_q, outer_q, word};
        Words: begin
          if (goes && is_high) high_q <= word;
          if (goes && !is_body) iv_q <= {iv_q[0], word};
          if (goes && is_body) begin
            left_q    <= left_q - 1'b1;
            body_at_q <= body_at_q + 1'b1;
            part_q    <= last_word ? '0 : part_q + 1'b1;
          end
          if (block_valid && block_ready) begin
            blocks_q <= blocks_q - 1'b1;
            count_q  <= count_q + 1'b1;
          end
        end
        Icv: begin
          if (icv_goes) begin
            part_q    <= part_q + 1'b1;
            differs_q <= differs_q | (word ^ icv_word);
            if (!head_q.open) body_at_q <= body_at_q + 1'b1;
            else if (part_q == 2'd3) body_at_q <= body_at_q - 1'b1;
          end
        end
        Verdict: if (differs_q != '0) status_q <= BadIcv;
        Erase: body_at_q <= body_at_q - 1'b1;
        default: ;
      endcase
    end
  end

  // Four words make a beat for the hash unit.
  esp_pkg::beat_t beat_q, beat;
  logic beat_valid_q;
  logic [1:0] beat_words_q;
  assign pack_ready = !beat_valid_q || message_ready;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      beat_valid_q <= 1'b0;
      beat_words_q <= '0;
    end else if (clear) begin
      beat_valid_q <= 1'b0;
      beat_words_q <= '0;
    end else begin
      if (pack_ready) beat_valid_q <= hashes && (ends_message || beat_words_q == 2'd3);
      if (hashes) beat_words_q <= ends_message ? '0 : beat_words_q + 1'b1;
    end
  end
  always_ff @(posedge clk_i) begin
    if (clear) begin
      beat_q <= '0;
    end else if (hashes) begin
      beat_q.data[32*beat_words_q+:32] <= swapped(hashed);
      beat_q.keep                      <= 16'hffff >> (4 * (3 - beat_words_q));
      beat_q.last                      <= ends_message;
    end
  end

  assign beat     = flush_q == HashMessage ? '{data: '0, keep: '1, last: 1'b1} : beat_q;
  hmac_unit u_hash (
    .clk_i,
    .rst_ni(hash_rst_nq),
    .cmd_valid_i((state_q == Decide && !head_q.is_key && keyed_q) || flush_q == HashCommand),
    .cmd_ready_o(command_ready),
    .inner_i(inner_q),
    .outer_i(outer_q),
    .msg_valid_i(beat_valid_q || flush_q == HashMessage),
    .msg_ready_o(message_ready),
    .msg_i(beat),
    .icv_valid_o(icv_valid),
    .icv_ready_i(clear ? overwritten_q : icv_goes && part_q == 2'd3),
    .icv_o(icv)
  );

  // The body, then the ICV of a sealed packet; zeros where a body must not be left behind.
  assign write      = (goes && is_body) || (icv_goes && !head_q.open) || state_q == Erase;
  assign write_at   = body_at_q;
  assign write_word = state_q == Erase ? '0 : state_q == Icv ? icv_word : turned;
  assign answers    = state_q == Answer;
  always_comb begin
    answer = '{status: status_q, bytes: '0, words: '0};
    if (status_q == Sealed || status_q == Opened) begin
      answer.bytes = {head_q.body_words, 2'b00};
      answer.words = head_q.body_words + (status_q == Sealed ? 14'(IcvWords) : '0);
    end
  end
endmodule
