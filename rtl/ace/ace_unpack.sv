// Decompresses what crates/ace packs (docs/ace.md, "Format"): a file is stored, then its symbols come, part after part.
//
// Two memories: the dictionary, a node a word, and the index, packed as in the file. One register, node_q, addresses
// the dictionary. Where a node's link is its own number the phrase ends, and the next codeword is the address; else the
// link is. So every cycle gives a symbol, also where a phrase has only one.
//
// Files are hostile. Links lead to smaller numbers, so every phrase ends. A part gives as many symbols as the header says,
// or the file ends there with the reason. What came before it is to be thrown away then.
module ace_unpack
  import ace_unpack_pkg::*;
#(
  parameter  int unsigned Width = 16,  // the widest codeword, at most 28; the dictionary has 2^Width nodes
  parameter  int unsigned IndexWords = 4096,  // of the index, 32 bits each; a power of two
  parameter  int unsigned Parts = 16,  // a power of two
  localparam int unsigned PartWidth = $clog2(Parts)
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 valid_i,    // bytes of a file
  output logic                 ready_o,
  input  logic [          7:0] byte_i,
  input  logic                 last_i,
  output logic                 valid_o,    // symbols
  input  logic                 ready_i,
  output logic [          7:0] symbol_o,
  output logic [PartWidth-1:0] part_o,
  output logic                 last_o,     // of its part
  output logic                 done_o,     // for a cycle, behind the file and its symbols
  output outcome_e             outcome_o
);
  localparam int unsigned IndexAddr = $clog2(IndexWords);
  localparam int unsigned MaxWidth = 28;  // of the format
  localparam int unsigned CountWidth = IndexAddr + 6;  // of codewords, which have a bit at least

  typedef logic [Width-1:0] phrase_t;
  typedef logic [CountWidth-1:0] count_t;
  typedef struct packed {
    count_t      codewords;
    logic [31:0] symbols;
  } extent_t;

  typedef enum logic [2:0] {
    Header,
    Extents,
    Dictionary,
    Index,
    Drain,    // of a file that is refused
    Begin,    // a part
    Read
  } state_e;
  state_e state_q, state_d;
  outcome_e outcome_q, outcome_d;
  logic take;
  assign take = valid_i && ready_o;
  assign ready_o = state_q != Begin && state_q != Read;

  // What the header says.
  logic [4:0] width_q;
  logic [PartWidth:0] parts_q;
  logic [Width:0] phrases_q;

  // The file comes in: the last bytes, and where in the header it is.
  logic [87:0] former_q;
  logic [95:0] bytes;
  logic [3:0] at_q;
  logic [PartWidth:0] part_q, next_part;
  logic header_ends, extent_ends, extents_end;
  assign bytes       = {former_q, byte_i};
  assign header_ends = state_q == Header && at_q == 4'd11;
  assign extent_ends = state_q == Extents && at_q[2:0] == 3'd7;
  assign next_part   = part_q + 1'b1;
  assign extents_end = extent_ends && next_part == parts_q;

  logic good_format, fits;
  logic [31:0] phrases;
  logic [15:0] parts;
  assign phrases     = bytes[31:0];
  assign parts       = bytes[47:32];
  assign good_format = bytes[95:56] == {"ACEP", 8'd1} && bytes[55:48] >= 8'd1 && bytes[55:48] <= 8'(MaxWidth) &&
      parts != '0 && phrases != '0 && phrases <= 32'd1 << bytes[52:48];
  assign fits        = bytes[55:48] <= 8'(Width) && parts <= 16'(Parts);

  // A part's index takes so many bytes.
  extent_t extents[Parts];
  extent_t extent;
  logic [31:0] codewords;
  logic too_many;
  logic [CountWidth+4:0] index_bits;
  logic [CountWidth+6:0] index_left_q, index_bytes;  // bytes of the index; parts may have more than there is room for
  assign codewords   = bytes[63:32];
  assign too_many    = codewords > 32'(IndexWords * 32);
  assign index_bits  = (CountWidth + 5)'(codewords) * (CountWidth + 5)'(width_q) + (CountWidth + 5)'(7);
  assign index_bytes = index_left_q + (CountWidth + 7)'(index_bits >> 3);
  always_ff @(posedge clk_i) begin
    if (take && extent_ends) begin
      extents[part_q[PartWidth-1:0]] <= '{codewords: count_t'(codewords), symbols: bytes[31:0]};
    end
  end
  assign extent = extents[part_q[PartWidth-1:0]];

  // Nodes are cut out of the bytes; at most seven bits are left over. A byte ends one node at most.
  logic [5:0] gathered_q, gathered, node_bits;
  logic [42:0] node;
  logic node_ends, dictionary_ends;
  phrase_t filled_q;
  assign node_bits       = 6'(width_q) + 6'd8;
  assign gathered        = gathered_q + 6'd8;
  assign node_ends       = state_q == Dictionary && gathered >= node_bits;
  assign node            = bytes[42:0] >> (gathered - node_bits);
  assign dictionary_ends = node_ends && (Width + 1)'(filled_q) + 1'b1 == phrases_q;

  logic [31:0] index_word;
  logic index_ends, store;
  logic [IndexAddr+1:0] stored_q;  // bytes
  assign index_ends = state_q == Index && index_left_q == (CountWidth + 7)'(1);
  // Words of the index are written when they are full, the last one with what there is.
  assign store      = take && state_q == Index && (stored_q[1:0] == 2'd3 || index_ends);
  always_comb begin
    case (stored_q[1:0])
      2'd0:    index_word = {byte_i, 24'b0};
      2'd1:    index_word = {bytes[15:0], 16'b0};
      2'd2:    index_word = {bytes[23:0], 8'b0};
      default: index_word = bytes[31:0];
    endcase
  end

  always_ff @(posedge clk_i) begin
    if (take) begin
      former_q <= bytes[87:0];
      if (header_ends) begin
        width_q      <= bytes[52:48];
        parts_q      <= (PartWidth + 1)'(parts);
        phrases_q    <= (Width + 1)'(phrases);
        index_left_q <= '0;
      end else if (extent_ends) begin
        index_left_q <= index_bytes;
      end else if (state_q == Index) begin
        index_left_q <= index_left_q - 1'b1;
      end
      gathered_q <= state_q != Dictionary ? '0 : node_ends ? gathered - node_bits : gathered;
      filled_q   <= state_q != Dictionary ? '0 : filled_q + phrase_t'(node_ends);
      stored_q   <= state_q != Index ? '0 : stored_q + 1'b1;
    end
  end
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) at_q <= '0;
    else if (done_o || (take && (header_ends || extent_ends))) at_q <= '0;
    else if (take) at_q <= at_q + 1'b1;
  end

  // Codewords: bits of the index, the first one the highest, and one codeword that is cut out of them.
  logic reading, part_begins, part_ends;
  logic [63:0] bits_q, bits_d;
  logic [6:0] have_q, have_d, have_cut;
  logic cut, align, fetched_q, fetch, refill;
  logic [IndexAddr:0] fetch_at_q;
  logic [31:0] fetched;
  logic codeword_valid_q, codeword_taken, codeword_bad_q;
  phrase_t codeword_q;
  logic [31:0] codeword;
  count_t codewords_q;
  assign reading     = state_q == Begin || state_q == Read;
  assign part_begins = state_q == Begin;
  assign align       = part_ends;
  assign cut         = state_q == Read && codewords_q != '0 && have_q >= 7'(width_q) &&
      (!codeword_valid_q || codeword_taken);
  assign codeword    = bits_q[63:32] >> (6'd32 - 6'(width_q));
  // A part's index ends with a byte.
  assign have_cut    = have_q - (cut ? 7'(width_q) : align ? 7'(have_q[2:0]) : '0);
  assign refill      = fetched_q && have_cut <= 7'd32;
  assign have_d      = have_cut + (refill ? 7'd32 : '0);
  assign bits_d      = (bits_q << (cut ? width_q : align ? 5'(have_q[2:0]) : '0)) |
      (refill ? {fetched, 32'b0} >> have_cut : '0);
  // What is behind the last word is never cut out.
  assign fetch       = reading && (!fetched_q || refill) && fetch_at_q != (IndexAddr + 1)'(IndexWords);

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      have_q           <= '0;
      fetched_q        <= 1'b0;
      fetch_at_q       <= '0;
      codeword_valid_q <= 1'b0;
    end else if (!reading) begin
      have_q           <= '0;
      fetched_q        <= 1'b0;
      fetch_at_q       <= '0;
      codeword_valid_q <= 1'b0;
    end else begin
      have_q           <= have_d;
      fetched_q        <= fetch || (fetched_q && !refill);
      fetch_at_q       <= fetch_at_q + (IndexAddr + 1)'(fetch);
      codeword_valid_q <= cut || (codeword_valid_q && !codeword_taken);
    end
  end
  always_ff @(posedge clk_i) begin
    bits_q <= reading ? bits_d : '0;
    if (part_begins) codewords_q <= extent.codewords;
    else if (cut) codewords_q <= codewords_q - 1'b1;
    if (cut) begin
      codeword_q     <= phrase_t'(codeword);
      codeword_bad_q <= codeword >= 32'(phrases_q);
    end
  end

  // The chain of nodes.
  logic node_valid_q, goes, chain_goes_on, wrong;
  phrase_t node_q, address, link;
  logic [7:0] symbol;
  logic [31:0] missing_q;
  assign wrong          = link > node_q || missing_q == '0;
  assign valid_o        = state_q == Read && node_valid_q && !wrong;
  assign goes           = state_q == Read && (!node_valid_q || (valid_o && ready_i));
  assign chain_goes_on  = node_valid_q && link != node_q;
  assign codeword_taken = goes && !chain_goes_on && codeword_valid_q;
  assign address        = chain_goes_on ? link : codeword_q;
  assign symbol_o       = symbol;
  assign part_o         = part_q[PartWidth-1:0];
  assign last_o         = missing_q == 32'd1;
  assign part_ends      = state_q == Read && !node_valid_q && !codeword_valid_q && codewords_q == '0;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) node_valid_q <= 1'b0;
    else if (state_q != Read) node_valid_q <= 1'b0;
    else if (goes) node_valid_q <= chain_goes_on || codeword_valid_q;
  end
  always_ff @(posedge clk_i) begin
    if (goes) node_q <= address;
    if (part_begins) missing_q <= extent.symbols;
    else if (valid_o && ready_i) missing_q <= missing_q - 1'b1;
  end

  // The memories. No word is read in the cycle in which it is written.
  (* no_rw_check *)
  logic [Width+7:0] nodes[1 << Width];
  (* no_rw_check *)
  logic [31:0] index[IndexWords];
  logic [7:0] node_symbol;
  phrase_t node_link;
  assign node_symbol = 8'(node >> width_q);
  assign node_link   = phrase_t'(node & ((43'd1 << width_q) - 1'b1));
  always_ff @(posedge clk_i) begin
    if (take && node_ends) nodes[filled_q] <= {node_symbol, node_link};
    if (goes) {symbol, link} <= nodes[address];
  end
  always_ff @(posedge clk_i) begin
    if (store) index[stored_q[IndexAddr+1:2]] <= index_word;
    if (fetch) fetched <= index[fetch_at_q[IndexAddr-1:0]];
  end

  // The course of a file. One that is refused is drained to its end.
  always_comb begin
    state_d   = state_q;
    outcome_d = outcome_q;
    case (state_q)
      Header:
      if (take && header_ends) begin
        state_d = Extents;
        if (!good_format) outcome_d = Format;
        else if (!fits) outcome_d = TooLarge;
        else if (last_i) outcome_d = Length;
      end else if (take && last_i) begin
        outcome_d = Length;
      end
      Extents:
      if (take) begin
        if (extents_end) state_d = Dictionary;
        if (extent_ends && (too_many || index_bytes > (CountWidth + 7)'(4 * IndexWords))) outcome_d = TooLarge;
        else if (last_i) outcome_d = Length;
      end
      Dictionary:
      if (take) begin
        if (dictionary_ends) state_d = index_left_q == '0 ? Begin : Index;
        if (last_i != (dictionary_ends && index_left_q == '0)) outcome_d = Length;
      end
      Index:
      if (take) begin
        if (index_ends) state_d = Begin;
        if (last_i != index_ends) outcome_d = Length;
      end
      Begin: state_d = Read;
      Read: begin
        if (node_valid_q && link > node_q) outcome_d = Link;
        else if (node_valid_q && missing_q == '0) outcome_d = Long;
        else if (codeword_taken && codeword_bad_q) outcome_d = Codeword;
        else if (part_ends && missing_q != '0) outcome_d = Short;
        if (part_ends) state_d = next_part == parts_q ? Header : Begin;
        if (outcome_d != Fine) state_d = Header;
      end
      default: if (take && last_i) state_d = Header;
    endcase
    if (ready_o && outcome_d != Fine && state_q != Drain) state_d = last_i ? Header : Drain;
  end
  assign done_o    = state_d == Header && (state_q == Read || state_q == Drain || (take && last_i));
  assign outcome_o = outcome_d;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      state_q   <= Header;
      outcome_q <= Fine;
      part_q    <= '0;
    end else begin
      state_q   <= state_d;
      outcome_q <= done_o ? Fine : outcome_d;
      if (done_o || (take && extents_end)) part_q <= '0;
      else if ((take && extent_ends) || (part_ends && state_d == Begin)) part_q <= next_part;
    end
  end
endmodule
