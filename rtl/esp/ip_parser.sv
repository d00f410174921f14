// Reads IPv4 and IPv6 headers off a stream that it does not hold up. What it found of a packet is there six cycles
// after the last beat, for one cycle.
//
// IPv6 extension headers are skipped as RFC 4301, 4.4.1.1 wants it; more than 15 make a packet malformed.
module ip_parser (
  input  logic            clk_i,
  input  logic            rst_ni,
  input  logic            valid_i,
  input  esp_pkg::beat_t  beat_i,
  output logic            done_o,
  output esp_pkg::parse_t parse_o
);
  import esp_pkg::*;

  localparam logic [7:0] HopByHop = 8'd0;
  localparam logic [7:0] Routing = 8'd43;
  localparam logic [7:0] Fragment = 8'd44;
  localparam logic [7:0] DestinationOptions = 8'd60;
  localparam int unsigned IndexWidth = 12;  // of a beat: frames have up to 64 KiB

  function automatic logic is_extension(logic [7:0] protocol);
    return protocol inside {HopByHop, Routing, Fragment, DestinationOptions};
  endfunction

  function automatic logic has_ports(logic [7:0] protocol);
    return protocol inside {8'd6, 8'd17, 8'd33, 8'd132, 8'd136};
  endfunction

  // What is known from the fixed header on.
  typedef struct packed {
    logic         v4;
    logic         v6;
    logic         dont_fragment;
    logic         fragment;
    logic         later;
    logic         bad;
    logic         found;      // the upper layer's beginning
    logic [13:0]  unit;       // where that is, in 8 bytes; IPv6
    logic [3:0]   words;      // of the IPv4 header
    logic [7:0]   tos;
    logic [19:0]  flow_label;
    logic [16:0]  bytes;
    logic [7:0]   protocol;
    logic [127:0] source;
    logic [127:0] destination;
  } head_t;

  // 8 bytes as an extension header that begins there.
  typedef struct packed {
    logic [7:0]  next;
    logic        extension;       // next is one, too
    logic        fragment;        // and that one
    logic        later;           // as a fragment header: not the first fragment
    logic [13:0] behind;          // else: where it ends
    logic        first;           // which is the next beat's first unit
    logic        second;          // or its second one
    logic        bad;             // which is behind the packet's end
    logic        bad_fragment;    // as a fragment header
  } unit_t;

  // The walk over extension headers.
  typedef struct packed {
    logic [7:0]  next;
    logic        extension;
    logic        is_fragment;  // the next header
    logic [13:0] at;           // where that is; once found, the upper layer
    logic        first;        // that is the next beat's first unit
    logic        second;       // or its second one
    logic [3:0]  count;
    logic        found;
    logic        fragment;
    logic        later;
    logic        bad;
  } walk_t;

  // `second`: it is the second of its beat.
  function automatic unit_t decode(logic [28:0] word, logic [11:0] index, logic second, logic [16:0] bytes);
    logic [12:0] unit;
    unit_t u;
    unit           = {index, second};
    u.next         = word[28:21];
    u.extension    = is_extension(word[28:21]);
    u.fragment     = word[28:21] == Fragment;
    u.later        = word[12:0] != '0;
    u.behind       = 14'(unit) + 14'd1 + 14'(word[20:13]);
    u.first        = word[20:13] == (second ? 8'd0 : 8'd1);
    u.second       = word[20:13] == (second ? 8'd1 : 8'd2);
    u.bad          = {u.behind, 3'b0} > bytes;
    u.bad_fragment = {1'b0, unit + 13'd1, 3'b0} > bytes;
    return u;
  endfunction

  // What follows a fragment header begins with the next unit, `fragment_end`: that of this beat is entered at once.
  function automatic walk_t enter(walk_t was, unit_t u, logic [13:0] fragment_end);
    walk_t now;
    now             = was;
    now.next        = u.next;
    now.extension   = u.extension;
    now.is_fragment = u.fragment;
    now.at          = was.is_fragment ? fragment_end : u.behind;
    now.first       = was.is_fragment || u.first;
    now.second      = !was.is_fragment && u.second;
    now.count       = was.count + 1'b1;
    now.found       = !u.extension || (was.is_fragment && u.later);
    now.fragment    = was.fragment || was.is_fragment;
    now.later       = was.is_fragment && u.later;
    now.bad         = was.bad || was.count == 4'd15 || (was.is_fragment ? u.bad_fragment : u.bad);
    return now;
  endfunction

  // First stage: what a beat is on its own.
  logic [IndexWidth-1:0] index_q, zero_index_q;
  logic [IndexWidth:0] zero_next_q;  // the next beat's
  logic first_q;  // the next beat is a frame's first
  logic zero_valid_q, zero_first_q, zero_second_q, zero_third_q, zero_last_q;
  logic [DataWidth-1:0] zero_data_q;
  logic [4:0] zero_bytes_q;
  unit_t [1:0] units_q;
  logic short_q;  // the first unit, as an extension header, is no longer than that
  head_t head_q, head_d;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      first_q      <= 1'b1;
      index_q      <= '0;
      zero_valid_q <= 1'b0;
    end else begin
      if (valid_i) begin
        first_q <= beat_i.last;
        if (beat_i.last) index_q <= '0;
        else if (index_q != '1) index_q <= index_q + 1'b1;
      end
      zero_valid_q <= valid_i;
    end
  end

  logic [31:0] in_word[4];
  for (genvar n = 0; n < 4; n++) begin : g_in_word
    assign in_word[n] = word_of(beat_i.data, 2'(n));
  end
  always_ff @(posedge clk_i) begin
    zero_first_q  <= first_q;
    zero_second_q <= index_q == IndexWidth'(1);
    zero_third_q  <= index_q == IndexWidth'(2);
    zero_last_q   <= beat_i.last;
    zero_index_q  <= index_q;
    zero_next_q   <= (IndexWidth + 1)'(index_q) + 1'b1;
    zero_data_q   <= beat_i.data;
    zero_bytes_q  <= 5'($countones(beat_i.keep));
    short_q       <= in_word[0][23:16] == '0;
    // Extension headers come in the third beat or later: head_q is this packet's by then.
    for (int unsigned n = 0; n < 2; n++) units_q[n] <= decode(in_word[2*n][31:3], index_q, 1'(n), head_q.bytes);
  end

  // Second stage: the fixed header, the walk, and which words belong to an IPv4 header.
  logic [31:0] word[4];
  for (genvar n = 0; n < 4; n++) begin : g_word
    assign word[n] = word_of(zero_data_q, 2'(n));
  end

  // Whether the next header begins in a beat is known since the beat before.
  walk_t walk_q, walk_d, walk_past, walk_middle;
  logic enters_first, enters_second;
  logic [16:0] total_q;  // bytes of the frame
  assign enters_first  = !walk_q.found && walk_q.first;
  assign walk_middle   = enters_first ? enter(walk_q, units_q[0], {1'b0, zero_index_q, 1'b1}) : walk_past;
  assign enters_second = enters_first ? !walk_middle.found && (walk_q.is_fragment || short_q)
                                      : !walk_q.found && walk_q.second;
  always_comb begin
    walk_past        = walk_q;
    walk_past.first  = walk_q.at == {zero_next_q, 1'b0};
    walk_past.second = walk_q.at == {zero_next_q, 1'b1};
  end

  always_comb begin
    head_d = head_q;
    walk_d = enters_second ? enter(walk_middle, units_q[1], {zero_next_q, 1'b0}) : walk_middle;
    if (zero_first_q) begin
      head_d.v4          = word[0][31:28] == 4'd4;
      head_d.v6          = word[0][31:28] == 4'd6;
      head_d.words       = word[0][27:24];
      head_d.destination = '0;
      if (head_d.v4) begin
        head_d.tos           = word[0][23:16];
        head_d.flow_label    = '0;
        head_d.bytes         = {1'b0, word[0][15:0]};
        head_d.dont_fragment = word[1][14];
        head_d.fragment      = word[1][13:0] != '0;
        head_d.later         = word[1][12:0] != '0;
        head_d.protocol      = word[2][23:16];
        head_d.source        = {96'b0, word[3]};
        head_d.bad           = word[0][27:24] < 4'd5;
      end else begin
        head_d.tos           = word[0][27:20];
        head_d.flow_label    = word[0][19:0];
        head_d.bytes         = 17'(word[1][31:16]) + 17'd40;
        head_d.dont_fragment = 1'b1;
        head_d.source        = {word[2], word[3], 64'b0};
      end
      walk_d             = '0;
      walk_d.next        = word[1][15:8];
      walk_d.extension   = is_extension(word[1][15:8]);
      walk_d.is_fragment = word[1][15:8] == Fragment;
      walk_d.found       = !is_extension(word[1][15:8]);
      walk_d.at          = 14'd5;
    end else if (zero_second_q) begin
      if (head_q.v4) begin
        head_d.destination = {96'b0, word[0]};
      end else begin
        head_d.source[63:0]        = {word[0], word[1]};
        head_d.destination[127:64] = {word[2], word[3]};
      end
    end else if (head_q.v6 && zero_third_q) begin
      head_d.destination[63:0] = {word[0], word[1]};
    end
  end

  logic one_valid_q, one_first_q, one_last_q;
  logic [IndexWidth-1:0] one_index_q;
  logic [DataWidth-1:0] one_data_q;
  logic [3:0] one_there_q;

  // Which stages hold a beat, and a frame's last one.
  logic two_valid_q, two_last_q, three_last_q, four_last_q;
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      one_valid_q  <= 1'b0;
      two_valid_q  <= 1'b0;
      two_last_q   <= 1'b0;
      three_last_q <= 1'b0;
      four_last_q  <= 1'b0;
      done_o       <= 1'b0;
    end else begin
      one_valid_q  <= zero_valid_q;
      two_valid_q  <= one_valid_q;
      two_last_q   <= one_valid_q && one_last_q;
      three_last_q <= two_last_q;
      four_last_q  <= three_last_q;
      done_o       <= four_last_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (zero_valid_q) begin
      head_q      <= head_d;
      walk_q      <= walk_d;
      total_q     <= (zero_first_q ? '0 : total_q) + 17'(zero_bytes_q);
      one_first_q <= zero_first_q;
      one_last_q  <= zero_last_q;
      one_index_q <= zero_index_q;
      one_data_q  <= zero_data_q;
      for (int unsigned n = 0; n < 4; n++) begin
        one_there_q[n] <= zero_first_q || {zero_index_q, 2'(n)} < (IndexWidth + 2)'(head_q.words);
      end
    end
  end

  // Third stage: the first words behind the headers, which may begin in this very beat; IPv4's sum, word by word.
  head_t one_head;
  always_comb begin
    one_head       = head_q;
    one_head.found = 1'b1;
    if (!head_q.v4) begin
      one_head.found    = walk_q.found;
      one_head.unit     = walk_q.at;
      one_head.protocol = walk_q.next;
      one_head.fragment = walk_q.fragment;
      one_head.later    = walk_q.later;
      one_head.bad      = walk_q.bad;
    end
  end

  logic [14:0] upper_word;
  logic [31:0] one_word[4];
  logic [5:0][31:0] front_q;  // the very first in [5]
  head_t two_head_q;
  logic [16:0] two_total_q;
  logic [3:0][16:0] two_sums_q;
  logic two_first_q;

  assign upper_word = head_q.v4 ? 15'(head_q.words) : {walk_q.at, 1'b0};
  for (genvar n = 0; n < 4; n++) begin : g_one_word
    assign one_word[n] = word_of(one_data_q, 2'(n));
    always_ff @(posedge clk_i) begin
      two_sums_q[n] <= one_there_q[n] ? 17'(one_word[n][31:16]) + 17'(one_word[n][15:0]) : '0;
    end
  end

  for (genvar n = 0; n < 6; n++) begin : g_front
    logic [14:0] at;
    assign at = upper_word + 15'(n);
    always_ff @(posedge clk_i) begin
      if (one_valid_q && one_head.found && at[14:2] == {1'b0, one_index_q}) front_q[5-n] <= one_word[at[1:0]];
    end
  end

  always_ff @(posedge clk_i) begin
    two_first_q <= one_first_q;
    if (one_valid_q) begin
      two_head_q  <= one_head;
      two_total_q <= total_q;
    end
  end

  // Fourth stage: the whole sum. Fifth: lengths, and the sum folded. Sixth: is it sound?
  head_t three_head_q, four_head_q;
  logic [5:0][31:0] three_front_q, four_front_q;
  logic [16:0] three_total_q, upper_byte, folded_q;
  logic [31:0] sum_q;
  logic [15:0] four_upper_q;
  logic cut_q, four_there_q, two_there_q;
  logic wrong_sum, opaque, icmp, ported, unused;
  assign unused = &{1'b0, four_head_q.unit, four_head_q.words};
  assign upper_byte = three_head_q.v4 ? {11'b0, three_head_q.words, 2'b0} : {three_head_q.unit, 3'b0};

  always_ff @(posedge clk_i) begin
    if (two_valid_q) begin
      sum_q <= ((two_first_q ? '0 : sum_q) + 32'(two_sums_q[0]) + 32'(two_sums_q[1])) +
               (32'(two_sums_q[2]) + 32'(two_sums_q[3]));
    end
    three_head_q  <= two_head_q;
    three_front_q <= front_q;
    three_total_q <= two_total_q;

    four_head_q  <= three_head_q;
    four_front_q <= three_front_q;
    four_upper_q <= upper_byte[15:0];
    folded_q     <= 17'(sum_q[31:16]) + 17'(sum_q[15:0]);
    cut_q        <= three_head_q.bytes > three_total_q || (three_head_q.v4 && three_head_q.bytes < upper_byte);
    four_there_q <= upper_byte + 17'd4 <= three_head_q.bytes;
    two_there_q  <= upper_byte + 17'd2 <= three_head_q.bytes;
  end

  always_comb begin
    // The header has at most 60 bytes: the second carry cannot make a third.
    wrong_sum = 16'(folded_q[15:0] + 16'(folded_q[16])) != '1;
    opaque    = four_head_q.v6 && four_head_q.later && is_extension(four_head_q.protocol);
    icmp      = four_head_q.protocol inside {8'd1, 8'd58};
    ported    = icmp ? two_there_q : has_ports(four_head_q.protocol) && four_there_q;
  end

  always_ff @(posedge clk_i) begin
    if (four_last_q) begin
      parse_o.malformed <= !(four_head_q.v4 || four_head_q.v6) || four_head_q.bad || !four_head_q.found || cut_q
                           || (four_head_q.v4 && wrong_sum);
      parse_o.v6               <= four_head_q.v6;
      parse_o.dont_fragment    <= four_head_q.dont_fragment;
      parse_o.fragment         <= four_head_q.fragment;
      parse_o.protocol_known   <= !opaque;
      parse_o.ports_known      <= ported && !four_head_q.later;
      parse_o.tos              <= four_head_q.tos;
      parse_o.flow_label       <= four_head_q.flow_label;
      parse_o.bytes            <= four_head_q.bytes[15:0];
      parse_o.protocol         <= four_head_q.protocol;
      parse_o.upper            <= four_upper_q;
      parse_o.source_port      <= four_front_q[5][31:16];
      parse_o.destination_port <= icmp ? four_front_q[5][31:16] : four_front_q[5][15:0];
      parse_o.source           <= four_head_q.source;
      parse_o.destination      <= four_head_q.destination;
      parse_o.front            <= four_front_q;
    end
  end
endmodule
