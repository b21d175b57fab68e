/* Calls on threads and the process. */
#ifndef SPOOLGATE_CLINUX_THREAD_H
#define SPOOLGATE_CLINUX_THREAD_H

/* pthread_setname_np(3) for the calling thread; a name over 15 bytes is cut. */
void spoolgate_name_thread(const char *name);

/* Sets malloc(3) up for many threads that each hold little: few arenas, and freed buffers of up to a
   megabyte stay for the next request instead of being mapped anew. */
void spoolgate_tune_memory(void);

/* Gives the free pages of the heap back to the system, in whatever place: free(3) does so at an arena's
   end only. */
void spoolgate_release_heap(void);

/* Gives the pages of the calling thread's stack below its present frame back to the system: what a
   deep call touched once stays resident otherwise. Not for the main thread. */
void spoolgate_release_stack(void);

#endif
