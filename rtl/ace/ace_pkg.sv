// The ciphers of the adaptive cryptographic engine: what the port and the five ciphers share.
//
// The first byte of a key or a block is in the highest bits. A cipher takes no decision but by key length and direction, so
// all its cycle counts are constants of this package.
package ace_pkg;
  localparam int unsigned Rijndael = 0;
  localparam int unsigned Serpent = 1;
  localparam int unsigned Twofish = 2;
  localparam int unsigned Rc6 = 3;
  localparam int unsigned Mars = 4;

  typedef logic [127:0] block_t;
  typedef logic [31:0] word_t;
  typedef word_t [3:0] words_t;  // of a block; the first word is [0]

  // Of a key: 0 has 128 bits, 1 has 192, 2 and 3 have 256. The key is in the highest bits.
  typedef logic [1:0] key_bits_t;

  // A key slot is filled. The cipher has two, and expands one key at a time.
  typedef struct packed {
    logic         valid;
    logic         slot;
    key_bits_t    bits;
    logic [255:0] key;
  } key_command_t;

  typedef struct packed {
    logic      slot;
    key_bits_t bits;
    logic      encrypt;
  } block_kind_t;

  typedef struct packed {
    logic        valid;
    block_kind_t kind;
    block_t      block;
  } block_entry_t;

  typedef struct packed {
    logic   valid;
    logic   slot;
    block_t block;
  } block_result_t;

  // Wipes a cipher's memories: zero is written at address `at`, which counts up. Flip-flops are cleared.
  typedef struct packed {
    logic       active;
    logic [5:0] at;
  } wipe_t;

  // A block goes round a ring of registers, one pass after the other. One of these travels with it.
  typedef struct packed {
    logic        valid;
    block_kind_t kind;
    logic        last;
    logic [4:0]  pass;
  } turn_t;

  // Little-endian words, as all but Rijndael read bytes.
  function automatic word_t swapped(word_t w);
    return {w[7:0], w[15:8], w[23:16], w[31:24]};
  endfunction

  function automatic words_t words_of(block_t block);
    for (int unsigned i = 0; i < 4; i++) words_of[i] = swapped(block[127-32*i-:32]);
  endfunction

  function automatic block_t block_of(words_t w);
    for (int unsigned i = 0; i < 4; i++) block_of[127-32*i-:32] = swapped(w[i]);
  endfunction

  // Word i of a key, the first one 0.
  function automatic word_t key_word(logic [255:0] key, int unsigned i);
    return swapped(key[255-32*i-:32]);
  endfunction

  function automatic word_t rol(word_t w, int unsigned by);
    return by % 32 == 0 ? w : w << by % 32 | w >> (32 - by % 32);
  endfunction

  // By a variable amount: five steps of a barrel shifter.
  function automatic word_t turned(word_t w, logic [4:0] by);
    turned = w;
    for (int unsigned i = 0; i < 5; i++) if (by[i]) turned = rol(turned, 1 << i);
  endfunction

  // Rounds that stand side by side in the ring.
  function automatic int unsigned default_unroll(int unsigned algorithm);
    return algorithm == Rijndael || algorithm == Serpent ? 2 : 1;
  endfunction

  // Registers in the ring for each round. So many blocks can take turns in it.
  function automatic int unsigned stages_of(int unsigned algorithm, bit long_keys);
    case (algorithm)
      Rijndael, Serpent: return 2;
      Twofish: return long_keys ? 8 : 6;
      Rc6: return 4;
      default: return 6;
    endcase
  endfunction

  // Cycles from the one that takes a key to the first one in which a block under it may enter the ring. Every later round
  // finds its subkey then, because subkeys are made as fast as rounds use them.
  function automatic int unsigned first_block(int unsigned algorithm, bit long_keys, int unsigned bits, bit encrypt);
    case (algorithm)
      Rijndael: return encrypt ? 4 : 23 + 4 * bits;
      Serpent: return encrypt ? 4 : 36;
      Twofish: return (encrypt ? 10 : 16) + (long_keys ? 2 : 0);
      Rc6: return encrypt ? 184 : 265;
      default: return encrypt ? 152 : 254;
    endcase
  endfunction

  // Cycles until the next key can be taken.
  function automatic int unsigned expansion(int unsigned algorithm, int unsigned bits);
    case (algorithm)
      Rijndael: return 23 + 4 * bits;
      Serpent: return 36;
      Twofish: return 48;
      Rc6: return 265;
      default: return 254;
    endcase
  endfunction
endpackage
