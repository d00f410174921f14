// The policy: entries that match ternary, the first of them counts. One lookup a cycle, the answer after eight. What comes
// with a lookup as its tag comes with the answer too.
//
// The key is cut into pieces, and each addresses a memory whose words have one bit an entry: whether the entry takes that
// piece. Their AND is the entries that match. To write an entry is to walk all words of every memory (523 cycles with
// pieces of 9 bits, 27 with 4); lookups wait for that, so that a packet meets the old entry or the new one. Entries have no
// content after reset. Pieces of 9 bits fill block RAMs, those of 4 or 5 the RAMs that LUTs make.
//
// The memories are many and lie far apart: the walk goes from one group of them to the next, a cycle later in each.
//
// Configuration words: 0-9 value, 10-19 care (1: compare), 20 result, and 21 commits these to the row: 1 writes the
// entry, 0 deletes it.
module policy #(
  parameter int unsigned Entries = 64,  // a power of two, at most 64
  parameter int unsigned Piece   = 9,   // bits
  parameter int unsigned TagWidth = 1
) (
  input  logic                     clk_i,
  input  logic                     rst_ni,
  input  logic                     cfg_valid_i,
  output logic                     cfg_ready_o,
  input  logic               [9:0] cfg_row_i,
  input  logic               [5:0] cfg_word_i,
  input  logic              [31:0] cfg_data_i,
  input  logic                     valid_i,
  output logic                     ready_o,
  input  esp_pkg::policy_key_t     key_i,
  input  logic      [TagWidth-1:0] tag_i,
  output logic                     valid_o,
  output esp_pkg::policy_result_t  result_o,
  output logic      [TagWidth-1:0] tag_o
);
  import esp_pkg::*;
  localparam int unsigned IndexWidth = $clog2(Entries);
  localparam int unsigned KeyBits = 300;  // that mean something
  localparam int unsigned Pieces = (KeyBits + Piece - 1) / Piece;
  localparam int unsigned Groups = 6;  // of pieces, to AND in two steps: piece p is in group p modulo this
  localparam int unsigned Stages = 8;

  typedef logic [Entries-1:0] entries_t;
  typedef logic [Pieces-1:0][Piece-1:0] pieces_t;

  // Writing.
  logic [31:0] value_q[10], care_q[10];
  policy_result_t staged_q;
  logic [319:0] value, care;
  logic commit_q, write_q, walking_q, walked_q;
  // Of each group: the word that is to be read, its way to the one that is written, and the entry.
  logic [Groups-1:0] reading_q;
  logic [Groups-1:0][Piece-1:0] walk_q;
  logic [Groups-1:0][3:0][Piece-1:0] behind_q;
  logic [Groups-1:0][3:0] behind_valid_q;
  entries_t [Groups-1:0] one_hot_q;
  logic [IndexWidth-1:0] row_q;
  entries_t valid_q;

  assign cfg_ready_o = !walking_q && !commit_q;
  for (genvar n = 0; n < 10; n++) begin : g_words
    assign value[32*n+:32] = value_q[n];
    assign care[32*n+:32]  = care_q[n];
  end

  always_ff @(posedge clk_i) begin
    if (cfg_valid_i && cfg_ready_o) begin
      for (int unsigned n = 0; n < 10; n++) begin
        if (cfg_word_i == 6'(n)) value_q[n] <= cfg_data_i;
        if (cfg_word_i == 6'(n + 10)) care_q[n] <= cfg_data_i;
      end
      if (cfg_word_i == 6'd20) begin
        staged_q <= '{
            hit: 1'b1,
            action: action_e'(cfg_data_i[1:0]),
            target: cfg_data_i[11:2],
            generation: cfg_data_i[18:12]
        };
      end
      row_q   <= cfg_row_i[IndexWidth-1:0];
      write_q <= cfg_data_i[0];
    end
    one_hot_q <= {one_hot_q[Groups-2:0], entries_t'(1) << row_q};
    walk_q[Groups-1:1] <= walk_q[Groups-2:0];
    walk_q[0] <= commit_q ? '0 : walk_q[0] + 1'b1;
    for (int unsigned g = 0; g < Groups; g++) behind_q[g] <= {behind_q[g][2:0], walk_q[g]};
  end

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      commit_q       <= 1'b0;
      walking_q      <= 1'b0;
      walked_q       <= 1'b0;
      reading_q      <= '0;
      behind_valid_q <= '0;
      valid_q        <= '0;
    end else begin
      commit_q <= cfg_valid_i && cfg_ready_o && cfg_word_i == 6'd21 && cfg_row_i < 10'(Entries);
      reading_q[Groups-1:1] <= reading_q[Groups-2:0];
      for (int unsigned g = 0; g < Groups; g++) behind_valid_q[g] <= {behind_valid_q[g][2:0], reading_q[g]};
      walked_q <= behind_valid_q[Groups-1][3] && behind_q[Groups-1][3] == '1;
      if (commit_q) begin
        if (!write_q) valid_q[row_q] <= 1'b0;
        walking_q    <= write_q;
        reading_q[0] <= write_q;
      end else begin
        if (walk_q[0] == '1) reading_q[0] <= 1'b0;
        if (walked_q) begin
          walking_q <= 1'b0;
          valid_q   <= valid_q | one_hot_q[0];
        end
      end
    end
  end

  // Lookup.
  pieces_t key_pieces, value_pieces, care_pieces;
  logic [Stages-1:0] stage_q;
  logic [Stages-1:0][TagWidth-1:0] tags_q;
  entries_t word_q[Pieces];

  assign ready_o      = cfg_ready_o;
  // Words 0 and 1 have 44 bits that mean something.
  assign key_pieces   = pieces_t'({key_i.local_address, key_i.remote_address, key_i[43:0]});
  assign value_pieces = pieces_t'({value[319:64], value[43:0]});
  assign care_pieces  = pieces_t'({care[319:64], care[43:0]});
  assign valid_o      = stage_q[Stages-1];
  assign tag_o        = tags_q[Stages-1];

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) stage_q <= '0;
    else stage_q <= {stage_q[Stages-2:0], valid_i && ready_o};
  end
  always_ff @(posedge clk_i) tags_q <= {tags_q[Stages-2:0], tag_i};

  for (genvar p = 0; p < Pieces; p++) begin : g_piece
    localparam int unsigned Group = p % Groups;
    // Registers on both sides of the memory: its own delay is long, and so are the ways. What is written is not read then.
    (* no_rw_check *)
    entries_t mem[1 << Piece];
    logic [Piece-1:0] address_q;
    logic matching_q;
    entries_t read_q, written_q;
    always_ff @(posedge clk_i) begin
      address_q  <= reading_q[Group] ? walk_q[Group] : key_pieces[p];
      read_q     <= mem[address_q];
      word_q[p]  <= read_q;
      matching_q <= ((behind_q[Group][1] ^ value_pieces[p]) & care_pieces[p]) == '0;
      written_q  <= (word_q[p] & ~one_hot_q[Group]) | (one_hot_q[Group] & {Entries{matching_q}});
      if (behind_valid_q[Group][3]) mem[behind_q[Group][3]] <= written_q;
    end
  end

  entries_t group_q[Groups], group_d[Groups], hits_q, hits_d;
  always_comb begin
    for (int unsigned g = 0; g < Groups; g++) begin
      group_d[g] = '1;
      for (int unsigned p = g; p < Pieces; p += Groups) group_d[g] &= word_q[p];
    end
    hits_d = valid_q;
    for (int unsigned g = 0; g < Groups; g++) hits_d &= group_q[g];
  end

  // The first hit's number: bit n of it is set if the first hit is among the entries whose numbers have that bit.
  entries_t first_q;
  logic [IndexWidth-1:0] index, index_q;
  logic any_q, any_next_q;
  always_comb begin
    index = '0;
    for (int unsigned e = 0; e < Entries; e++) index |= first_q[e] ? IndexWidth'(e) : '0;
  end

  policy_result_t results[Entries];
  always_ff @(posedge clk_i) begin
    // Last, so that lookups under way still find what their entry said.
    if (walked_q) results[row_q] <= staged_q;
    group_q    <= group_d;
    hits_q     <= hits_d;
    first_q    <= hits_q & (~hits_q + 1'b1);
    any_q      <= hits_q != '0;
    index_q    <= index;
    any_next_q <= any_q;
    result_o   <= any_next_q ? results[index_q] : '0;
  end
endmodule
