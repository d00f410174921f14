// The frames of ace_lane (docs/ace-cores.md, "The ESP lane").
package ace_lane_pkg;
  typedef logic [31:0] word_t;

  localparam logic [7:0] OpKey = 8'd1;
  localparam logic [7:0] OpPacket = 8'd2;

  // Of frames: the first word, cipher key, nonce and both HMAC states, and what stands in front of a body and behind it.
  localparam int unsigned KeyFrameWords = 26;
  localparam int unsigned HeaderWords = 6;
  localparam int unsigned IcvWords = 4;

  typedef enum logic [2:0] {
    Sealed    = 3'd1,
    Opened    = 3'd2,
    BadIcv    = 3'd3,
    Malformed = 3'd4,
    NoKey     = 3'd5
  } status_e;

  typedef struct packed {
    status_e     status;
    logic [15:0] bytes;   // of the body
    logic [13:0] words;   // behind the status word
  } answer_t;

  // What a frame's first word says.
  typedef struct packed {
    logic        good;
    logic        is_key;
    logic [1:0]  key_bits;   // as ace_pkg::key_bits_t
    logic        open;
    logic        esn;
    logic [13:0] body_words;
    logic [14:0] last_word;  // the number of the frame's last word
  } head_t;

  function automatic head_t head_of(word_t w, int unsigned body_words, bit long_keys);
    logic key, packet;
    key    = w[31:24] == OpKey && w[23:2] == '0 && (long_keys ? w[1:0] != 2'd3 : w[1:0] == 2'd0);
    packet = w[31:24] == OpPacket && w[23:18] == '0 && w[1:0] == '0 && 32'(w[15:2]) <= body_words;
    return '{
      good: key || packet,
      is_key: key,
      key_bits: w[1:0],
      open: w[16],
      esn: w[17],
      body_words: w[15:2],
      last_word: key ? 15'(KeyFrameWords - 1) : 15'(w[15:2]) + 15'(w[16] ? HeaderWords + IcvWords - 1 : HeaderWords - 1)
    };
  endfunction
endpackage
