// Reproducible random numbers.

/// SplitMix64.
package struct SplitMix: RandomNumberGenerator, Sendable {
    private var state: UInt64

    /// Begins a seed's sequence.
    package init(seed: UInt64) { state = seed }

    /// The next 64 bits.
    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    /// One of the values, equally probable.
    package mutating func one<Value>(of values: Value...) -> Value {
        values[Int(next() % UInt64(values.count))]
    }

    /// One of the values, which must not be empty.
    package mutating func one<Value>(from values: [Value]) -> Value {
        values[Int(next() % UInt64(values.count))]
    }

    /// A number below `count`; 0 if `count` is.
    package mutating func next(_ count: Int) -> Int { count <= 0 ? 0 : Int(next() % UInt64(count)) }

    /// True with probability 1 in `count`.
    package mutating func once(in count: UInt64) -> Bool { next() % count == 0 }
}
