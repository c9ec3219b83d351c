/*
 * Runs a fuzz target over files without libFuzzer: each file of the folders named, whole and cut at
 * every length up to CUTS. Exit 1 when a folder can't be read or holds no file; a failed property
 * aborts.
 */
#include <dirent.h>
#include <stdio.h>

#include "fuzz.h"

enum { FILE_MAX = 1 << 20, CUTS = 256 };

static void
run(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = fuzz_copy(bytes, len);

    check(LLVMFuzzerTestOneInput(copy, len) == 0);
    free(copy);
}

static bool
replay_file(const char *path)
{
    static uint8_t bytes[FILE_MAX];
    FILE *file = fopen(path, "rb");
    size_t len;

    if (file == NULL) {
        perror(path);
        return false;
    }
    len = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    run(bytes, len);
    for (size_t cut = 0; cut < len && cut < CUTS; cut++)
        run(bytes, cut);
    return true;
}

static unsigned
replay_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    unsigned count = 0;
    char path[4096];

    if (dir == NULL) {
        perror(folder);
        return 0;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        count += replay_file(path);
    }
    closedir(dir);
    return count;
}

int
main(int argc, char **argv)
{
    if (argc < 2)
        return 1;
    for (int i = 1; i < argc; i++) {
        unsigned count = replay_folder(argv[i]);

        printf("%s: %u files\n", argv[i], count);
        if (count == 0)
            return 1;
    }
    return 0;
}
