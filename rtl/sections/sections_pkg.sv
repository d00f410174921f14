// What the sections of Gateway 2.0 agree on: the internal header that travels with a packet, on TUSER and in beats in
// front of it, and loses in each section what was needed there.
package sections_pkg;
  localparam int unsigned Types = 5;
  localparam int unsigned RowWidth = 10;

  // The type of unit that a packet wants in a section. A section has units of some of these.
  typedef enum logic [2:0] {
    UnitPass     = 3'd0,  // nothing is done
    UnitMain     = 3'd1,  // SAD access, encapsulation, AES-CBC, HMAC-SHA1
    UnitDes      = 3'd2,  // ciphering only
    UnitPriority = 3'd3,  // as UnitMain, for high-priority traffic
    UnitNobody   = 3'd4   // the switch drops it
  } unit_e;

  typedef logic [3:0] port_t;

  // A beat as the switches carry it: four block RAMs wide, where with TKEEP it would be five. Bit 0 says that it is the last.
  typedef struct packed {
    logic [127:0] data;
    logic [3:0]   bytes;  // of a last beat, less one
    logic         last;
  } word_t;

  function automatic word_t to_word(esp_pkg::beat_t beat);
    logic [15:0] keep;
    keep = beat.keep;
    // Its ones have no gaps: the highest is looked for by halves.
    to_word.data     = beat.data;
    to_word.last     = beat.last;
    to_word.bytes[3] = keep[8];
    to_word.bytes[2] = keep[8] ? keep[12] : keep[4];
    to_word.bytes[1] = keep[{to_word.bytes[3:2], 2'b10}];
    to_word.bytes[0] = keep[{to_word.bytes[3:1], 1'b1}];
  endfunction

  function automatic esp_pkg::beat_t to_beat(word_t word);
    return '{data: word.data, keep: 16'hffff >> (4'd15 - word.bytes), last: word.last};
  endfunction

  // Selectors of an exact match. The first byte that is hashed is the source's first.
  typedef struct packed {
    logic [15:0] destination_port;
    logic [15:0] source_port;
    logic [7:0]  protocol;
    logic [31:0] destination;
    logic [31:0] source;
  } selector_t;

  // As written on the wire: the first byte in the low bits. Numbers in the headers below have it in the high bits.
  typedef struct packed {
    logic                 valid;
    esp_pkg::action_e     action;
    esp_pkg::generation_t generation;  // of the SA
    logic [RowWidth-1:0]  row;
    selector_t            selector;
  } policy_t;

  // To the policy section.
  typedef struct packed {
    port_t       port;
    logic [15:0] bytes;
  } frame_head_t;

  // To the SAD section.
  typedef struct packed {
    port_t                port;
    unit_e                sad;
    esp_pkg::generation_t generation;
    logic [RowWidth-1:0]  row;
    logic [15:0]          bytes;
  } policy_head_t;

  // What the SAD says of a packet's SA. What is wide of it goes in front of the packet in beats of its own, each of four
  // words with the first in the low bits. Sections take theirs away: AddressBeats (SPI, sequence number, outer source and
  // destination) the encapsulation, KeyBeats (the key's words, the first one's first byte in [31:24]) the ciphering,
  // StateBeats (the inner HMAC state, then the outer; half a beat is left) HMAC. Without a cipher there are no KeyBeats
  // behind the encapsulation; packets for UnitPass have none at all.
  typedef struct packed {
    unit_e encap;   // UnitNobody: there is no such SA, the row has another one, or its sequence numbers are used up
    unit_e cipher;
    unit_e auth;
    logic  wide;    // 256-bit key
  } sa_t;

  localparam int unsigned AddressBeats = 1;
  localparam int unsigned KeyBeats = 2;
  localparam int unsigned StateBeats = 3;
  localparam int unsigned SaBeats = AddressBeats + KeyBeats + StateBeats;

  // A beat's words as a number, the first word in the high bits.
  function automatic logic [127:0] in_order(logic [127:0] words);
    return {words[31:0], words[63:32], words[95:64], words[127:96]};
  endfunction

  // To the encapsulation section.
  typedef struct packed {
    port_t       port;
    logic [15:0] bytes;
    sa_t         sa;
  } sad_head_t;

  // To the ciphering section.
  typedef struct packed {
    port_t port;
    unit_e cipher;
    unit_e auth;
    logic  wide;
  } encap_head_t;

  // To the HMAC section.
  typedef struct packed {
    port_t port;
    unit_e auth;
  } cipher_head_t;

  // To the exits. A protected packet has LeadPad zero bytes in front.
  typedef struct packed {
    port_t port;
    logic  lead;
  } auth_head_t;

  // Encapsulated packets are: LeadPad zero bytes, outer IPv4 header, ESP header, body (with the IV in front for
  // AES-CBC). So the body is aligned to beats, and what HMAC covers begins in the middle of the second beat.
  localparam int unsigned LeadPad = 4;
  localparam int unsigned LeadBeats = 2;

  // Pearson's permutation, shuffled from the identity by a linear congruential generator.
  function automatic logic [255:0][7:0] pearson_table();
    logic [255:0][7:0] t;
    logic [31:0] seed;
    logic [7:0] other;
    int unsigned j;
    seed = 32'd1;
    for (int unsigned i = 0; i < 256; i++) t[i] = 8'(i);
    for (int unsigned i = 255; i > 0; i--) begin
      seed = seed * 32'd1103515245 + 32'd12345;
      j = (seed >> 16) % (i + 1);
      other = t[i];
      t[i] = t[j];
      t[j] = other;
    end
    return t;
  endfunction

  localparam logic [255:0][7:0] PearsonTable = pearson_table();

  function automatic logic [15:0] swap16(logic [15:0] x);
    return {x[7:0], x[15:8]};
  endfunction

  function automatic logic [31:0] swap32(logic [31:0] x);
    return {x[7:0], x[15:8], x[23:16], x[31:24]};
  endfunction

  // One's complement sum of 16-bit words, folded.
  function automatic logic [15:0] fold(logic [19:0] sum);
    logic [16:0] once;
    once = 17'(sum[15:0]) + 17'(sum[19:16]);
    return once[15:0] + 16'(once[16]);
  endfunction
endpackage
