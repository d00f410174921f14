// Reads IPv4 and IPv6 headers off a stream that it does not hold up. What it found of a packet is there three cycles
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
    logic [12:0]  unit;       // where that is, in 8 bytes; IPv6
    logic [3:0]   words;      // of the IPv4 header
    logic [7:0]   tos;
    logic [19:0]  flow_label;
    logic [16:0]  bytes;
    logic [7:0]   protocol;
    logic [127:0] source;
    logic [127:0] destination;
  } head_t;

  // The walk over extension headers, 8 bytes at a time.
  typedef struct packed {
    logic [7:0]  next;
    logic [7:0]  skip;      // units of the header that are still to come
    logic [3:0]  count;
    logic        found;
    logic [12:0] unit;
    logic        fragment;
    logic        later;
    logic        bad;
  } walk_t;

  function automatic walk_t step(walk_t was, logic [28:0] word, logic [12:0] unit, logic [16:0] bytes);
    walk_t now;
    logic [13:0] header_end;
    now = was;
    header_end = 14'(unit) + 14'd1 + 14'(word[20:13]);
    if (!was.found) begin
      if (was.skip != '0) begin
        now.skip = was.skip - 1'b1;
      end else begin
        // An extension header begins here.
        now.next  = word[28:21];
        now.count = was.count + 1'b1;
        if (was.next == Fragment) begin
          now.fragment = 1'b1;
          now.later    = word[12:0] != '0;
          if ({1'b0, unit + 13'd1, 3'b0} > bytes) now.bad = 1'b1;
        end else begin
          now.skip = word[20:13];
          if ({header_end, 3'b0} > bytes) now.bad = 1'b1;
        end
        if (was.count == 4'd15) now.bad = 1'b1;
      end
      if (now.skip == '0 && (now.later || !is_extension(now.next))) begin
        now.found = 1'b1;
        now.unit  = unit + 13'd1;
      end
    end
    return now;
  endfunction

  // First stage: the fixed header, the walk, and the sum of an IPv4 header's words.
  logic [31:0] word[4];
  for (genvar n = 0; n < 4; n++) begin : g_word
    assign word[n] = word_of(beat_i.data, 2'(n));
  end

  logic [IndexWidth-1:0] index_q;
  logic first_q;  // the next beat is a frame's first
  head_t head_q, head_d;
  walk_t walk_q, walk_d, walk_middle;
  logic [16:0] total_q;  // bytes of the frame
  logic [18:0] sum_d;

  always_comb begin
    head_d      = head_q;
    walk_d      = walk_q;
    walk_middle = walk_q;
    sum_d       = '0;
    if (first_q) begin
      head_d.v4            = word[0][31:28] == 4'd4;
      head_d.v6            = word[0][31:28] == 4'd6;
      head_d.bad           = 1'b0;
      head_d.found         = head_d.v4;
      head_d.words         = word[0][27:24];
      head_d.unit          = '0;
      head_d.destination   = '0;
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
        head_d.fragment      = 1'b0;
        head_d.later         = 1'b0;
        head_d.protocol      = word[1][15:8];
        head_d.source        = {word[2], word[3], 64'b0};
      end
      walk_d      = '0;
      walk_d.next = word[1][15:8];
    end else if (index_q == IndexWidth'(1)) begin
      if (head_q.v4) begin
        head_d.destination = {96'b0, word[0]};
      end else begin
        head_d.source[63:0]        = {word[0], word[1]};
        head_d.destination[127:64] = {word[2], word[3]};
      end
    end else if (head_q.v6) begin
      if (index_q == IndexWidth'(2)) begin
        head_d.destination[63:0] = {word[0], word[1]};
        walk_middle              = walk_q;
        if (!is_extension(walk_q.next)) begin
          walk_middle.found = 1'b1;
          walk_middle.unit  = 13'd5;
        end
      end else begin
        walk_middle = step(walk_q, word[0][31:3], {index_q, 1'b0}, head_q.bytes);
      end
      walk_d = step(walk_middle, word[2][31:3], {index_q, 1'b1}, head_q.bytes);
      head_d.found    = walk_d.found;
      head_d.unit     = walk_d.unit;
      head_d.protocol = walk_d.next;
      head_d.fragment = walk_d.fragment;
      head_d.later    = walk_d.later;
      head_d.bad      = walk_d.bad;
    end
    for (int unsigned n = 0; n < 4; n++) begin
      if (first_q || {index_q, 2'(n)} < (IndexWidth + 2)'(head_q.words)) begin
        sum_d = sum_d + 19'(word[n][31:16]) + 19'(word[n][15:0]);
      end
    end
  end

  logic one_valid_q, one_first_q, one_last_q, two_last_q;
  logic [IndexWidth-1:0] one_index_q;
  logic [DataWidth-1:0] one_data_q;
  logic [18:0] one_sum_q;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      first_q     <= 1'b1;
      index_q     <= '0;
      one_valid_q <= 1'b0;
      two_last_q  <= 1'b0;
      done_o      <= 1'b0;
    end else begin
      if (valid_i) begin
        first_q <= beat_i.last;
        if (beat_i.last) index_q <= '0;
        else if (index_q != '1) index_q <= index_q + 1'b1;
      end
      one_valid_q <= valid_i;
      two_last_q  <= one_valid_q && one_last_q;
      done_o      <= two_last_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_i) begin
      head_q      <= head_d;
      walk_q      <= walk_d;
      total_q     <= (first_q ? '0 : total_q) + 17'($countones(beat_i.keep));
      one_first_q <= first_q;
      one_last_q  <= beat_i.last;
      one_index_q <= index_q;
      one_data_q  <= beat_i.data;
      one_sum_q   <= sum_d;
    end
  end

  // Second stage: the first words behind the headers, which may begin in this very beat.
  logic [13:0] upper_word;
  logic [31:0] one_word[4];
  logic [5:0][31:0] front_q;  // the very first in [5]
  head_t two_head_q;
  logic [16:0] two_total_q;
  logic [31:0] two_sum_q;

  assign upper_word = head_q.v4 ? 14'(head_q.words) : {head_q.unit, 1'b0};
  for (genvar n = 0; n < 4; n++) begin : g_one_word
    assign one_word[n] = word_of(one_data_q, 2'(n));
  end

  for (genvar n = 0; n < 6; n++) begin : g_front
    logic [13:0] at;
    assign at = upper_word + 14'(n);
    always_ff @(posedge clk_i) begin
      if (one_valid_q && head_q.found && at[13:2] == one_index_q) front_q[5-n] <= one_word[at[1:0]];
    end
  end

  always_ff @(posedge clk_i) begin
    if (one_valid_q) begin
      two_head_q  <= head_q;
      two_total_q <= total_q;
      two_sum_q   <= (one_first_q ? '0 : two_sum_q) + 32'(one_sum_q);
    end
  end

  // Third stage: is it sound?
  logic [16:0] upper_byte;
  logic [16:0] folded;
  logic short_v4, wrong_sum, four_there, two_there, opaque;

  always_comb begin
    upper_byte = two_head_q.v4 ? {11'b0, two_head_q.words, 2'b0} : {1'b0, two_head_q.unit, 3'b0};
    folded     = 17'(two_sum_q[31:16]) + 17'(two_sum_q[15:0]);
    // The header has at most 60 bytes: the second carry cannot make a third.
    wrong_sum  = 16'(folded[15:0] + 16'(folded[16])) != '1;
    short_v4   = two_head_q.bytes < upper_byte;
    four_there = upper_byte + 17'd4 <= two_head_q.bytes;
    two_there  = upper_byte + 17'd2 <= two_head_q.bytes;
    opaque     = two_head_q.v6 && two_head_q.later && is_extension(two_head_q.protocol);
  end

  logic icmp, ported;
  assign icmp   = two_head_q.protocol inside {8'd1, 8'd58};
  assign ported = icmp ? two_there : has_ports(two_head_q.protocol) && four_there;

  always_ff @(posedge clk_i) begin
    if (two_last_q) begin
      parse_o.malformed <= !(two_head_q.v4 || two_head_q.v6) || two_head_q.bad || !two_head_q.found
                           || two_head_q.bytes > two_total_q || (two_head_q.v4 && (short_v4 || wrong_sum));
      parse_o.v6               <= two_head_q.v6;
      parse_o.dont_fragment    <= two_head_q.dont_fragment;
      parse_o.fragment         <= two_head_q.fragment;
      parse_o.protocol_known   <= !opaque;
      parse_o.ports_known      <= ported && !two_head_q.later;
      parse_o.tos              <= two_head_q.tos;
      parse_o.flow_label       <= two_head_q.flow_label;
      parse_o.bytes            <= two_head_q.bytes[15:0];
      parse_o.protocol         <= two_head_q.protocol;
      parse_o.upper            <= upper_byte[15:0];
      parse_o.source_port      <= front_q[5][31:16];
      parse_o.destination_port <= icmp ? front_q[5][31:16] : front_q[5][15:0];
      parse_o.source           <= two_head_q.source;
      parse_o.destination      <= two_head_q.destination;
      parse_o.front            <= front_q;
    end
  end
endmodule
