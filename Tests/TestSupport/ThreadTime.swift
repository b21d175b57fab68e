// The processor time of a thread, which other work of the machine does not change much.

import Glibc

package enum ThreadTime {
    /// The processor time of the calling thread in seconds.
    package static var seconds: Double {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }
}
