// What the modules of the ESP core agree on.
//
// Streams are AXI4-Stream, 128 bits: the first byte of a frame is data[7:0], keep has one bit a byte, only the last beat
// may be short, and its bytes come first. A cipher block has its first byte in bits 127:120, as FIPS 197 and
// SP 800-38D write it; to_block and from_block convert.
package esp_pkg;
  localparam int unsigned DataWidth = 128;
  localparam int unsigned KeepWidth = DataWidth / 8;

  typedef logic [DataWidth-1:0] block_t;

  typedef struct packed {
    logic [DataWidth-1:0] data;
    logic [KeepWidth-1:0] keep;
    logic                 last;
  } beat_t;

  // What becomes of a packet (RFC 4301 §4.4.1).
  typedef enum logic [1:0] {
    Discard = 2'd0,
    Bypass  = 2'd1,
    Protect = 2'd2,
    ToHost  = 2'd3   // not the core's: IKE, ESP for an unknown SA if the host asks for it, ICMP
  } action_e;

  typedef enum logic [1:0] {
    Gcm256     = 2'd0,  // AES-GCM with a 16 byte ICV (RFC 4106)
    Gcm128     = 2'd1,
    Ctr256Sha2 = 2'd2,  // AES-256-CTR (RFC 3686) with HMAC-SHA2-256-128 (RFC 4868)
    Ctr128Sha2 = 2'd3
  } suite_e;

  // Why a packet was dropped. Every reason has a counter of its own, at 4 times its number. No lane uses DropTtl and
  // DropOuter: the numbers stay because the register map and the driver name a counter for each.
  typedef enum logic [4:0] {
    DropNone          = 5'd0,
    DropMalformed     = 5'd1,   // IP header, lengths, keep
    DropTooLong       = 5'd2,   // longer than the frame buffer
    DropNoPolicy      = 5'd3,   // no entry matches: the default
    DropPolicy        = 5'd4,   // DISCARD
    DropFragment      = 5'd5,   // inbound: of ESP
    DropNoSa          = 5'd6,   // no such SA, or it is not valid
    DropSequenceEnd   = 5'd7,   // the sequence number would repeat (RFC 4303 §3.3.3)
    DropLifetime      = 5'd8,
    DropTooBig        = 5'd9,   // over the path MTU
    DropTtl           = 5'd10,  // the router in front of the lane counts the hop
    DropShort         = 5'd11,  // shorter than its SA's header, IV and ICV, or not a multiple of 4
    DropReplay        = 5'd12,
    DropIcv           = 5'd13,
    DropPadding       = 5'd14,  // longer than the packet, or wrong bytes
    DropSelector      = 5'd15,  // the inner packet is none that this SA may carry (RFC 4301 §5.2)
    DropOuter         = 5'd16,  // the SPI alone finds the SA (RFC 4301 §4.1)
    DropNextHeader    = 5'd17,  // of the trailer: neither IPv4, IPv6 nor a dummy
    DropDummy         = 5'd18,  // RFC 4303 §2.6
    DropInner         = 5'd19,  // the inner packet is malformed
    DropEcn           = 5'd20,  // congestion outside, not ECN-capable inside (RFC 6040 §4.2)
    DropNotProtected  = 5'd21   // inbound, plain, where the policy asks for protection
  } drop_e;

  // What ip_parser finds out about a packet. Where it is malformed the rest means nothing.
  typedef struct packed {
    logic         malformed;
    logic         v6;
    logic         dont_fragment;  // always in IPv6, whose routers never fragment
    logic         fragment;
    logic         protocol_known;  // not in later fragments that begin with an extension header
    logic         ports_known;
    logic [  7:0] tos;
    logic [ 19:0] flow_label;
    logic [ 15:0] bytes;           // of the packet; the frame may be longer
    logic [  7:0] protocol;        // behind IPv6 extension headers
    logic [ 15:0] upper;           // where that begins, in bytes
    logic [ 15:0] source_port;     // ICMP: type and code in both
    logic [ 15:0] destination_port;
    logic [127:0] source;          // IPv4: the low 32 bits
    logic [127:0] destination;
    logic [191:0] front;           // the first bytes behind the headers, the very first in the highest bits
  } parse_t;

  localparam int unsigned RowWidth = 10;  // of the SAD
  typedef logic [RowWidth-1:0] row_t;
  // Which of the SAs that a row has had; 0 is none. What was asked of one has nothing to do with the next.
  localparam int unsigned GenerationWidth = 7;
  typedef logic [GenerationWidth-1:0] generation_t;

  // What the policy looks at. Local is the protected side's end of a flow, remote the other.
  typedef struct packed {
    logic [127:0] local_address;  // IPv4: the low 32 bits, the others 0
    logic [127:0] remote_address;
    logic [19:0]  unused;
    logic         tunnelled;      // came out of an SA
    logic         v6;
    logic         protocol_known;
    logic         ports_known;
    logic [7:0]   protocol;
    logic [15:0]  local_port;
    logic [15:0]  remote_port;
  } policy_key_t;

  typedef struct packed {
    logic    hit;
    action_e action;
    row_t    target;  // outbound: the SA; inbound: the group of SAs that may carry such packets
    generation_t generation;  // of the SA
  } policy_result_t;

  function automatic policy_key_t policy_key(parse_t parse, logic outbound, logic tunnelled);
    policy_key_t key;
    key.local_address  = outbound ? parse.source : parse.destination;
    key.remote_address = outbound ? parse.destination : parse.source;
    key.local_port     = outbound ? parse.source_port : parse.destination_port;
    key.remote_port    = outbound ? parse.destination_port : parse.source_port;
    if (!parse.ports_known) {key.local_port, key.remote_port} = '0;
    key.unused         = '0;
    key.tunnelled      = tunnelled;
    key.v6             = parse.v6;
    key.protocol_known = parse.protocol_known;
    key.ports_known    = parse.ports_known;
    key.protocol       = parse.protocol_known ? parse.protocol : '0;
    return key;
  endfunction

  // The number of a packet or frame, which each of its parts carries where these take different ways. Assertions compare
  // the numbers where the parts meet again; nothing else reads them. More packets are never on their way.
  typedef logic [5:0] packet_id_t;

  // What becomes of a frame that came in: it is dropped (keep is 0), leaves as it is, or its SA is asked for (ask is 1).
  typedef struct packed {
    logic  ask;      // what the others say is known once the SAD has answered
    logic  keep;
    logic  to_host;
    drop_e reason;   // why it is dropped or goes to the host
  } fate_t;

  // For esp_cipher, one ahead of each packet's body. The salt lies with the keys.
  typedef struct packed {
    packet_id_t  id;
    suite_e      suite;
    logic [9:0]  row;     // of the key store
    generation_t generation;
    logic [63:0] iv;      // its first byte on the wire in the highest bits
    logic [31:0] spi;
    logic [31:0] seq_hi;
    logic [31:0] seq_lo;
    logic        esn;     // seq_hi is authenticated too
    logic [15:0] len;     // of the body in bytes: a multiple of 4, not 0
  } cipher_cmd_t;

  typedef struct packed {
    packet_id_t   id;
    logic [127:0] icv;  // its first byte in the lowest bits
    logic         ok;   // the key was still that of the packet's SA; opening: and the ICV that came is the right one
  } cipher_tag_t;

  // What sa_out wants to know of a packet.
  typedef struct packed {
    row_t        row;
    generation_t generation;
    logic        v6;
    logic        dont_fragment;
    logic [7:0]  tos;
    logic [19:0] flow_label;
    logic [15:0] bytes;
  } seal_ask_t;

  // How a packet is to be sealed, and what goes around it.
  typedef struct packed {
    suite_e       suite;
    row_t         row;
    generation_t  generation;
    logic         esn;
    logic [31:0]  spi;
    logic [63:0]  seq;
    logic [63:0]  iv;
    logic [15:0]  inner_bytes;
    logic         inner_v6;
    logic         v6;              // from here on the outer header
    logic         udp;
    logic         dont_fragment;
    logic [7:0]   tos;
    logic [7:0]   ttl;
    logic [19:0]  flow_label;
    logic [15:0]  identification;
    logic [15:0]  local_port;
    logic [15:0]  remote_port;
    logic [127:0] local_address;   // IPv4: the low 32 bits
    logic [127:0] remote_address;
  } seal_job_t;

  // What esp_assemble needs beside the body that was sealed.
  typedef struct packed {
    packet_id_t id;
    seal_job_t  job;
  } outer_t;

  // What sa_in wants to know of an ESP packet.
  typedef struct packed {
    logic [31:0] spi;
    logic [31:0] seq_lo;
    logic        too_short;  // or not a multiple of 4 bytes: what no SA may have sent
  } open_ask_t;

  // What it says.
  typedef struct packed {
    suite_e      suite;
    row_t        row;
    generation_t generation;
    row_t        group;  // of the policy, for the inner packet
    logic        esn;
    logic        dscp;   // the outer DSCP is carried inside (RFC 2983 §5.1)
    logic [63:0] seq;
  } open_sa_t;

  // How an ESP packet in a frame is to be opened.
  typedef struct packed {
    open_sa_t    sa;
    logic [31:0] spi;
    logic [63:0] iv;
    logic [7:0]  tos;    // outer
    logic [1:0]  shift;  // words of the first beat before the body
    logic [15:0] bytes;  // of the body
  } open_job_t;

  // What of that is needed once it is open.
  typedef struct packed {
    packet_id_t id;
    open_sa_t   sa;
    logic [7:0] tos;
  } opened_t;

  // What a trailer says (RFC 4303 §2.4).
  typedef struct packed {
    logic        sound;        // padding of 1, 2, 3, … no longer than the body
    logic [7:0]  next_header;
    logic [15:0] payload;      // bytes before the padding
  } trailer_t;

  // The length of the encrypted part: payload, padding to a multiple of 4, trailer (RFC 4303 §2.4).
  function automatic logic [15:0] body_bytes(logic [15:0] payload);
    return (payload + 16'd5) & ~16'd3;
  endfunction

  // What software is told besides counters.
  typedef enum logic [3:0] {
    EventNone     = 4'd0,
    EventSoft     = 4'd1,  // an SA's soft lifetime
    EventHard     = 4'd2,  // an SA's hard lifetime: it passes no more
    EventSequence = 4'd3,  // its sequence numbers are used up
    EventNoSa     = 4'd4   // a packet asks for an SA that is not there
  } event_e;

  // TUSER of what leaves the core.
  typedef struct packed {
    logic [14:0] unused;
    row_t        row;
    logic        protect;  // sealed or opened by that SA
    drop_e       reason;   // why it goes to the host
    logic        to_host;
  } user_t;

  // A word in network byte order, the n-th of a beat.
  function automatic logic [31:0] word_of(logic [DataWidth-1:0] data, logic [1:0] n);
    logic [31:0] little;
    little = data[32*n+:32];
    return {little[7:0], little[15:8], little[23:16], little[31:24]};
  endfunction

  // How many bytes a keep has that has no gaps: a bit of the sum is set where a group ends between two of its multiples.
  function automatic logic [4:0] kept_bytes(logic [KeepWidth-1:0] keep);
    kept_bytes    = '0;
    kept_bytes[4] = keep[15];
    for (int unsigned b = 0; b < 4; b++)
      for (int unsigned i = 2 ** b; i < 16; i += 2 ** (b + 1))
        if (keep[i-1] && !keep[i+2**b-1]) kept_bytes[b] = 1'b1;
  endfunction

  function automatic block_t to_block(logic [DataWidth-1:0] data);
    for (int unsigned i = 0; i < KeepWidth; i++) to_block[DataWidth-1-8*i-:8] = data[8*i+:8];
  endfunction

  function automatic logic [DataWidth-1:0] from_block(block_t block);
    return to_block(block);
  endfunction
endpackage
