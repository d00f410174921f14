//! Code points of the IANA registry "IKEv2 Parameters". Each type is a number with names for the known values,
//! because the codec must carry unknown ones too.

/// The major version of IKEv2 (RFC 7296 §2.5).
pub const MAJOR_VERSION: u8 = 2;

macro_rules! code_points {
    ($(#[$meta:meta])* $name:ident($int:ty) { $($constant:ident = $number:literal;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $int);

        impl $name {
            $(pub const $constant: Self = Self($number);)*

            /// The name in the IANA registry, if the value is known.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($constant)),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({})"), self.0),
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

code_points! {
    ExchangeType(u8) {
        IKE_SA_INIT = 34;
        IKE_AUTH = 35;
        CREATE_CHILD_SA = 36;
        INFORMATIONAL = 37;
    }
}

code_points! {
    /// Values of Next Payload. `NONE` ends a chain.
    PayloadType(u8) {
        NONE = 0;
        SA = 33;
        KE = 34;
        IDI = 35;
        IDR = 36;
        CERT = 37;
        CERTREQ = 38;
        AUTH = 39;
        NONCE = 40;
        NOTIFY = 41;
        DELETE = 42;
        VENDOR = 43;
        TSI = 44;
        TSR = 45;
        SK = 46;
        CP = 47;
        EAP = 48;
        SKF = 53;
    }
}

code_points! {
    /// Security protocol identifiers (RFC 7296 §3.3.1). `NONE` is for notifications that are about no particular SA.
    ProtocolId(u8) {
        NONE = 0;
        IKE = 1;
        AH = 2;
        ESP = 3;
    }
}

code_points! {
    TransformType(u8) {
        ENCRYPTION = 1;
        PRF = 2;
        INTEGRITY = 3;
        KEY_EXCHANGE = 4;
        SEQUENCE_NUMBERS = 5;
    }
}

code_points! {
    IdType(u8) {
        IPV4_ADDR = 1;
        FQDN = 2;
        RFC822_ADDR = 3;
        IPV6_ADDR = 5;
        DER_ASN1_DN = 9;
        DER_ASN1_GN = 10;
        KEY_ID = 11;
        NULL = 13;
    }
}

code_points! {
    CertEncoding(u8) {
        X509_SIGNATURE = 4;
        CRL = 7;
        X509_ATTRIBUTE = 10;
        HASH_AND_URL_X509 = 12;
        HASH_AND_URL_BUNDLE = 13;
        OCSP = 14;
        RAW_PUBLIC_KEY = 15;
    }
}

code_points! {
    AuthMethod(u8) {
        RSA_SIGNATURE = 1;
        SHARED_KEY = 2;
        DSS_SIGNATURE = 3;
        ECDSA_SHA2_256_P256 = 9;
        ECDSA_SHA2_384_P384 = 10;
        ECDSA_SHA2_512_P521 = 11;
        NULL = 13;
        DIGITAL_SIGNATURE = 14;
    }
}

code_points! {
    /// Hash algorithms of RFC 7427 §7 and RFC 8420.
    HashAlgorithm(u16) {
        SHA1 = 1;
        SHA2_256 = 2;
        SHA2_384 = 3;
        SHA2_512 = 4;
        IDENTITY = 5;
    }
}

code_points! {
    /// Notify types. Types below 16384 are errors, the others are status (RFC 7296 §3.10.1).
    NotifyType(u16) {
        UNSUPPORTED_CRITICAL_PAYLOAD = 1;
        INVALID_IKE_SPI = 4;
        INVALID_MAJOR_VERSION = 5;
        INVALID_SYNTAX = 7;
        INVALID_MESSAGE_ID = 9;
        INVALID_SPI = 11;
        NO_PROPOSAL_CHOSEN = 14;
        INVALID_KE_PAYLOAD = 17;
        AUTHENTICATION_FAILED = 24;
        SINGLE_PAIR_REQUIRED = 34;
        NO_ADDITIONAL_SAS = 35;
        INTERNAL_ADDRESS_FAILURE = 36;
        FAILED_CP_REQUIRED = 37;
        TS_UNACCEPTABLE = 38;
        INVALID_SELECTORS = 39;
        UNACCEPTABLE_ADDRESSES = 40;
        UNEXPECTED_NAT_DETECTED = 41;
        TEMPORARY_FAILURE = 43;
        CHILD_SA_NOT_FOUND = 44;
        INITIAL_CONTACT = 16384;
        SET_WINDOW_SIZE = 16385;
        ADDITIONAL_TS_POSSIBLE = 16386;
        IPCOMP_SUPPORTED = 16387;
        NAT_DETECTION_SOURCE_IP = 16388;
        NAT_DETECTION_DESTINATION_IP = 16389;
        COOKIE = 16390;
        USE_TRANSPORT_MODE = 16391;
        HTTP_CERT_LOOKUP_SUPPORTED = 16392;
        REKEY_SA = 16393;
        ESP_TFC_PADDING_NOT_SUPPORTED = 16394;
        NON_FIRST_FRAGMENTS_ALSO = 16395;
        MOBIKE_SUPPORTED = 16396;
        ADDITIONAL_IP4_ADDRESS = 16397;
        ADDITIONAL_IP6_ADDRESS = 16398;
        NO_ADDITIONAL_ADDRESSES = 16399;
        UPDATE_SA_ADDRESSES = 16400;
        COOKIE2 = 16401;
        NO_NATS_ALLOWED = 16402;
        AUTH_LIFETIME = 16403;
        MULTIPLE_AUTH_SUPPORTED = 16404;
        ANOTHER_AUTH_FOLLOWS = 16405;
        REDIRECT_SUPPORTED = 16406;
        EAP_ONLY_AUTHENTICATION = 16417;
        CHILDLESS_IKEV2_SUPPORTED = 16418;
        QUICK_CRASH_DETECTION = 16419;
        IKEV2_FRAGMENTATION_SUPPORTED = 16430;
        SIGNATURE_HASH_ALGORITHMS = 16431;
        USE_PPK = 16435;
        INTERMEDIATE_EXCHANGE_SUPPORTED = 16438;
        IKE_SA_INIT_FULL_TRANSCRIPT_AUTH = 16447;
    }
}

impl NotifyType {
    pub const fn is_error(self) -> bool {
        self.0 < 16384
    }
}

code_points! {
    /// Configuration payload types (RFC 7296 §3.15).
    ConfigurationType(u8) {
        CFG_REQUEST = 1;
        CFG_REPLY = 2;
        CFG_SET = 3;
        CFG_ACK = 4;
    }
}
