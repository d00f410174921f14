//! The reasons why the endpoint refuses a message. Every reason has one counter, and one stable name for `status` and
//! metrics.

esplanade_counters::reasons! {
    /// The reason why a message was refused, wholly or in part. Each reason has one counter.
    pub enum Refusal: Messages {
        /// There is no IKE header, or the lengths do not add up.
        Malformed = "malformed";
        /// A message on the NAT-T port has no non-ESP marker (RFC 3948 §2.2).
        NoMarker = "no-marker";
        /// The major version is above 2 (RFC 7296 §2.5).
        Version = "version";
        /// The gateway does not speak the exchange type.
        ExchangeType = "exchange-type";
        /// No IKE SA has these SPIs (RFC 7296 §2.21.4).
        UnknownSpi = "unknown-spi";
        /// A message of ours came back.
        Reflected = "reflected";
        /// The Encrypted payload failed its integrity check.
        Integrity = "integrity";
        /// The decrypted payloads could not be parsed.
        InvalidSyntax = "invalid-syntax";
        /// The message has a critical payload that the endpoint does not know (RFC 7296 §2.5).
        UnsupportedCriticalPayload = "unsupported-critical-payload";
        /// The message ID of a request is outside the window (RFC 7296 §2.3).
        MessageId = "message-id";
        /// No request of ours waits for the response.
        UnexpectedResponse = "unexpected-response";
        /// The exchange does not fit the phase of the SA.
        UnexpectedExchange = "unexpected-exchange";
        /// A copy of the last request was answered with the kept response.
        Retransmission = "retransmission";
        /// Another message has a message ID that was answered already.
        MessageIdReuse = "message-id-reuse";
        /// An unauthenticated notify came in IKE_SA_INIT, or outside an IKE SA. It is noted, and does not end the
        /// attempt, or an SA, at once.
        UnauthenticatedNotify = "unauthenticated-notify";
        /// IKE_SA_INIT was answered with a request for a cookie.
        CookieRequired = "cookie-required";
        /// The cookie of an IKE_SA_INIT request is wrong (RFC 7296 §2.6).
        CookieInvalid = "cookie-invalid";
        /// There are as many half-open SAs as there may be.
        HalfOpenLimit = "half-open-limit";
        /// An IKE_SA_INIT request is longer than 4,096 bytes, while half-open SAs keep 8 MiB of such requests.
        HalfOpenBytes = "half-open-bytes";
        /// The source, or a network around it, has its share of the half-open SAs.
        HalfOpenPerSource = "half-open-per-source";
        /// Many IKE SAs of the source were refused in IKE_AUTH, so that it is served slowly.
        RefusedPerSource = "refused-per-source";
        /// Too much work with public keys waits. The peer repeats its message.
        JobQueueFull = "job-queue-full";
        /// There are as many IKE SAs as there may be.
        IkeSaLimit = "ike-sa-limit";
        /// No connection is for this pair of addresses, or for these identities.
        NoConnection = "no-connection";
        /// The sender's address is new to us, and host names are being looked up: it can be that of one of them.
        NamesUnknown = "names-unknown";
        /// No proposal of the peer is one of ours.
        NoProposalChosen = "no-proposal-chosen";
        /// The peer is asked for another key exchange method (RFC 7296 §1.2).
        InvalidKePayload = "invalid-ke-payload";
        /// The peer has not proved its identity.
        AuthenticationFailed = "authentication-failed";
        /// The traffic selectors of the two ends do not meet (RFC 7296 §2.9).
        TsUnacceptable = "ts-unacceptable";
        /// Another peer has some of the traffic.
        TrafficHeld = "traffic-held";
        /// The peer has an IKE SA already, with `unique = keep`.
        Duplicate = "duplicate";
        /// The exchange collides with another one (RFC 7296 §2.25).
        TemporaryFailure = "temporary-failure";
        /// The request is about a child SA that is not there.
        ChildSaNotFound = "child-sa-not-found";
        /// The IKE SA has as many child SAs as it may have.
        ChildSaLimit = "child-sa-limit";
        /// The peer has as many child SAs as one identity may have (`child_sas_per_peer_max`). It hears
        /// NO_ADDITIONAL_SAS.
        ChildSaPerPeer = "child-sa-per-peer";
        /// The peer's child SAs would have more selectors than one identity may have (`selectors_per_peer_max`). It hears
        /// TS_UNACCEPTABLE.
        SelectorsPerPeer = "selectors-per-peer";
        /// The peer asks for child SAs or rekeys more often than one identity may (`child_requests_per_second`). It hears
        /// TEMPORARY_FAILURE.
        WorkPerPeer = "work-per-peer";
        /// The policy of a child SA has no room in the kernel's table, or the kernel refuses that table. The peer hears
        /// TS_UNACCEPTABLE.
        NoPolicyRoom = "no-policy-room";
        /// No SPI is left for the inbound SA.
        SpiExhausted = "spi-exhausted";
        /// A fragment came, and the two ends have not agreed on fragmentation (RFC 7383 §2.3).
        FragmentNotAgreed = "fragment-not-agreed";
        /// The number of a fragment is zero or above the total, or the total is below that of a fragment before.
        FragmentPlace = "fragment-place";
        /// A fragment came twice, or it belongs to a request that is answered already.
        FragmentDuplicate = "fragment-duplicate";
        /// The fragments of a message are too many, or too long in all. The IKE SA ends.
        FragmentLimit = "fragment-limit";
        /// The fragments of a message are dropped before all have come, because of time or because the sender has cut it
        /// anew.
        FragmentsIncomplete = "fragments-incomplete";
        /// A limit has kept back an error notify or a repeated response.
        RateLimited = "rate-limited";
    }
}
