// Reports on the console whether nginx writes into the spool by itself, each time that this changes:
//   POW uptime lane FILES WRITES BYTES
// the files of uploads that nginx's workers have open, their threads beside the main one that run or wait for a disk (a
// thread of the pool sleeps otherwise), and the bytes by which such files have grown since the boot.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PROCESSES 16
#define FILES 256

static struct { ino_t inode; off_t size; int is_open; } files[FILES];
static int processes[PROCESSES], count;
static long long bytes;

static void find(void) {
    DIR *all = opendir("/proc");
    struct dirent *entry;
    char path[300], name[32];

    count = 0;
    while (all != NULL && (entry = readdir(all)) != NULL && count < PROCESSES) {
        snprintf(path, sizeof path, "/proc/%s/comm", entry->d_name);
        int file = atoi(entry->d_name) > 0 ? open(path, O_RDONLY) : -1;
        if (file < 0) continue;
        ssize_t length = read(file, name, sizeof name - 1);
        if (length > 0 && strncmp(name, "nginx\n", length) == 0) processes[count++] = atoi(entry->d_name);
        close(file);
    }
    if (all != NULL) closedir(all);
}

// The growth of an open file since it was last seen.
static long long note(const struct stat *status) {
    int spare = -1;

    for (int index = 0; index < FILES; index++) {
        if (files[index].inode == status->st_ino && files[index].inode != 0) {
            long long grown = status->st_size - files[index].size;
            files[index].size = status->st_size;
            files[index].is_open = 1;
            return grown > 0 ? grown : 0;
        }
        if (files[index].inode == 0) spare = index;
    }
    if (spare >= 0) {
        files[spare].inode = status->st_ino;
        files[spare].size = status->st_size;
        files[spare].is_open = 1;
    }
    return 0;
}

static int open_files(int process) {
    char directory[64], path[400], target[512];
    struct dirent *entry;
    struct stat status;
    int found = 0;

    snprintf(directory, sizeof directory, "/proc/%d/fd", process);
    DIR *all = opendir(directory);
    while (all != NULL && (entry = readdir(all)) != NULL) {
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length < 0) continue;
        target[length] = 0;
        if (strncmp(target, "/data/spool/uploads/", 20) != 0) continue;
        found++;
        if (stat(path, &status) == 0) bytes += note(&status);
    }
    if (all != NULL) closedir(all);
    return found;
}

static int busy_threads(int process) {
    char directory[64], path[400], text[512];
    struct dirent *entry;
    int found = 0;

    snprintf(directory, sizeof directory, "/proc/%d/task", process);
    DIR *all = opendir(directory);
    while (all != NULL && (entry = readdir(all)) != NULL) {
        if (atoi(entry->d_name) == process || atoi(entry->d_name) == 0) continue;
        snprintf(path, sizeof path, "%s/%s/stat", directory, entry->d_name);
        int file = open(path, O_RDONLY);
        if (file < 0) continue;
        ssize_t length = read(file, text, sizeof text - 1);
        close(file);
        if (length <= 0) continue;
        text[length] = 0;
        const char *end = strrchr(text, ')');
        found += end != NULL && (end[2] == 'R' || end[2] == 'D');
    }
    if (all != NULL) closedir(all);
    return found;
}

int main(void) {
    char line[128], last[128] = "0 0 0\n";
    struct timespec now, pause = {0, 50 * 1000 * 1000};
    int console = open("/dev/ttyS0", O_WRONLY | O_NOCTTY);

    for (unsigned turn = 0;; turn++) {
        if (turn % 20 == 0) find();
        int open_now = 0, busy = 0;
        for (int index = 0; index < FILES; index++) files[index].is_open = 0;
        for (int index = 0; index < count; index++) {
            int found = open_files(processes[index]);
            open_now += found;
            if (found > 0) busy += busy_threads(processes[index]);
        }
        for (int index = 0; index < FILES; index++) if (!files[index].is_open) files[index].inode = 0;
        snprintf(line, sizeof line, "%d %d %lld\n", open_now, busy, bytes);
        if (strcmp(line, last) != 0) {
            char report[192];
            strcpy(last, line);
            clock_gettime(CLOCK_BOOTTIME, &now);
            int length = snprintf(report, sizeof report, "POW %lld.%02ld lane %s", (long long) now.tv_sec,
                now.tv_nsec / 10000000, line);
            if (write(console, report, length) < 0) return 1;
        }
        nanosleep(&pause, NULL);
    }
}
