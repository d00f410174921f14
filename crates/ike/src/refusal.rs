//! Why the endpoint refuses a message. Every reason has one counter and one stable name.

macro_rules! refusals {
    ($($(#[$meta:meta])* $variant:ident = $name:literal;)*) => {
        /// Why a message was refused, wholly or in part. Each has one counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Refusal { $($(#[$meta])* $variant,)* }

        impl Refusal {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Stable name for metrics and `status`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

refusals! {
    /// Not an IKE header, or lengths that do not add up.
    Malformed = "malformed";
    /// No non-ESP marker on the NAT-T port.
    NoMarker = "no-marker";
    /// A major version above 2 (RFC 7296 §2.5).
    Version = "version";
    /// An exchange type that this endpoint does not speak.
    ExchangeType = "exchange-type";
    /// No IKE SA with these SPIs (RFC 7296 §2.21.4).
    UnknownSpi = "unknown-spi";
    /// Our own message came back.
    Reflected = "reflected";
    /// The Encrypted payload failed its integrity check.
    Integrity = "integrity";
    /// The decrypted payloads could not be parsed.
    InvalidSyntax = "invalid-syntax";
    UnsupportedCriticalPayload = "unsupported-critical-payload";
    /// A request outside the window (RFC 7296 §2.3).
    MessageId = "message-id";
    /// A response that nobody waits for.
    UnexpectedResponse = "unexpected-response";
    /// The exchange does not fit the state of the SA.
    UnexpectedExchange = "unexpected-exchange";
    /// An identical request that was answered again from the cache.
    Retransmission = "retransmission";
    /// A different message under a message ID that was already answered.
    MessageIdReuse = "message-id-reuse";
    /// An unauthenticated error notify in IKE_SA_INIT, noted and not acted upon at once.
    UnauthenticatedNotify = "unauthenticated-notify";
    /// IKE_SA_INIT answered by a request for a cookie.
    CookieRequired = "cookie-required";
    CookieInvalid = "cookie-invalid";
    HalfOpenLimit = "half-open-limit";
    /// The source, or the network that it is in, has its share of the half-open SAs.
    HalfOpenPerSource = "half-open-per-source";
    /// Too many IKE SAs of the source were refused in IKE_AUTH.
    RefusedPerSource = "refused-per-source";
    IkeSaLimit = "ike-sa-limit";
    /// No connection for this pair of addresses, or for these identities.
    NoConnection = "no-connection";
    NoProposalChosen = "no-proposal-chosen";
    InvalidKePayload = "invalid-ke-payload";
    AuthenticationFailed = "authentication-failed";
    TsUnacceptable = "ts-unacceptable";
    /// Traffic selectors that another peer has.
    TrafficHeld = "traffic-held";
    /// A second IKE SA of the same peer (unique = keep).
    Duplicate = "duplicate";
    TemporaryFailure = "temporary-failure";
    ChildSaNotFound = "child-sa-not-found";
    ChildSaLimit = "child-sa-limit";
    /// No ESP SPI was to be had.
    SpiExhausted = "spi-exhausted";
    /// An error notify or a repeated response of our own that a limit kept back.
    RateLimited = "rate-limited";
}
