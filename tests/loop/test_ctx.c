/* The context: deferred work and graves at the end of a turn, memory given back. */
#include "loop_fixture.h"

#include "proxy/base/clock.h"

struct job {
    struct deferred deferred;
    struct grave grave;
    struct ctx *ctx;
    struct job *next; /* deferred by this one's run */
    unsigned ran, buried;
    bool dies;
};

static void
on_bury(struct grave *grave)
{
    container_of(grave, struct job, grave)->buried++;
}

static void
on_run(struct deferred *deferred)
{
    struct job *job = container_of(deferred, struct job, deferred);
    job->ran++;
    assert_false(list_linked(&deferred->node));
    if (job->next)
        ctx_defer(job->ctx, &job->next->deferred);
    if (job->dies)
        ctx_bury(job->ctx, &job->grave, on_bury);
    assert_int_equal(job->buried, 0); /* never inside the callback that asked for it */
}

static struct job
job_on(struct loop_fixture *fixture)
{
    return (struct job){.ctx = &fixture->ctx, .deferred.run = on_run};
}

static void
deferred_work_runs_once_in_the_next_prepare(void **state)
{
    struct loop_fixture *fixture = *state;
    struct job first = job_on(fixture), second = job_on(fixture);
    list_init(&first.deferred.node);
    list_init(&second.deferred.node);
    first.next = &second;
    first.dies = true;
    ctx_defer(&fixture->ctx, &first.deferred);
    ctx_defer(&fixture->ctx, &first.deferred);
    assert_int_equal(first.ran, 0);
    uint64_t before_ns = clock_now_ns();
    loop_turn(fixture);
    assert_int_equal(first.ran, 1);
    assert_int_equal(second.ran, 1); /* deferred while running: still this turn */
    assert_int_equal(first.buried, 1);
    assert_true(fixture->ctx.turn_ns >= before_ns);
    loop_turn(fixture);
    assert_int_equal(first.ran, 1);
}

static void
deferred_work_can_be_taken_back(void **state)
{
    struct loop_fixture *fixture = *state;
    struct job job = job_on(fixture);
    list_init(&job.deferred.node);
    ctx_defer(&fixture->ctx, &job.deferred);
    list_unlink(&job.deferred.node);
    loop_turn(fixture);
    assert_int_equal(job.ran, 0);
}

static void
flush_does_the_turns_work_without_a_loop(void **state)
{
    struct loop_fixture *fixture = *state;
    struct job job = job_on(fixture);
    list_init(&job.deferred.node);
    job.dies = true;
    ctx_defer(&fixture->ctx, &job.deferred);
    ctx_flush(&fixture->ctx);
    assert_int_equal(job.ran, 1);
    assert_int_equal(job.buried, 1);
}

static void
graves_left_at_the_end_are_buried_by_fini(void **state)
{
    struct loop_fixture *fixture = *state;
    static struct job job; /* outlives the test function: teardown buries it */
    job = job_on(fixture);
    list_init(&job.deferred.node);
    ctx_bury(&fixture->ctx, &job.grave, on_bury);
}

static void
chunks_go_back_to_the_heap_after_a_burst(void **state)
{
    struct loop_fixture *fixture = *state;
    struct job job = job_on(fixture);
    struct slices body;
    list_init(&job.deferred.node);
    slices_init(&body);
    static const char bytes[1 << 20];
    assert_true(slices_append(&body, &fixture->ctx.chunks, bytes, sizeof bytes, sizeof bytes));
    slices_clear(&body);
    assert_true(fixture->ctx.chunks.free_count[CHUNK_CLASSES - 1] > 8);
    ctx_defer(&fixture->ctx, &job.deferred); /* activity */
    loop_turn(fixture);
    assert_true(timer_running(&fixture->ctx.trim));
    /* Two trims, two seconds apart, here by hand. */
    for (unsigned i = 0; i < 2; i++) {
        assert_true(timer_running(&fixture->ctx.trim));
        timers_stop(&fixture->ctx.timers, &fixture->ctx.trim);
        fixture->ctx.trim.on_due(&fixture->ctx.trim);
    }
    assert_false(timer_running(&fixture->ctx.trim)); /* an idle worker sleeps */
    assert_true(fixture->ctx.chunks.free_count[CHUNK_CLASSES - 1] <= 2);
}

/* Without it a worker that is told to stop lives on for three more seconds. */
static void
a_resting_context_does_not_keep_the_loop_alive(void **state)
{
    struct loop_fixture *fixture = *state;
    struct job job = job_on(fixture);
    list_init(&job.deferred.node);
    ctx_defer(&fixture->ctx, &job.deferred);
    ctx_flush(&fixture->ctx);
    assert_true(uv_loop_alive(fixture->ctx.loop));
    ctx_rest(&fixture->ctx);
    assert_false(uv_loop_alive(fixture->ctx.loop));
    ctx_defer(&fixture->ctx, &job.deferred);
    ctx_flush(&fixture->ctx);
    assert_int_equal(job.ran, 2);
    assert_false(uv_loop_alive(fixture->ctx.loop));
}

static void
nghttp2_gets_its_memory_from_the_slab(void **state)
{
    struct loop_fixture *fixture = *state;
    nghttp2_mem *mem = &fixture->ctx.h2_mem;
    unsigned char *zeroed = mem->calloc(10, 10, mem->mem_user_data);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(zeroed[i], 0);
    memset(zeroed, 7, 100);
    zeroed = mem->realloc(zeroed, 3000, mem->mem_user_data);
    assert_int_equal(zeroed[99], 7);
    mem->free(zeroed, mem->mem_user_data);
    mem->free(NULL, mem->mem_user_data);
    mem->free(mem->malloc(0, mem->mem_user_data), mem->mem_user_data);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(deferred_work_runs_once_in_the_next_prepare, loop_setup,
                                        loop_teardown),
        cmocka_unit_test_setup_teardown(deferred_work_can_be_taken_back, loop_setup, loop_teardown),
        cmocka_unit_test_setup_teardown(flush_does_the_turns_work_without_a_loop, loop_setup,
                                        loop_teardown),
        cmocka_unit_test_setup_teardown(graves_left_at_the_end_are_buried_by_fini, loop_setup,
                                        loop_teardown),
        cmocka_unit_test_setup_teardown(chunks_go_back_to_the_heap_after_a_burst, loop_setup,
                                        loop_teardown),
        cmocka_unit_test_setup_teardown(a_resting_context_does_not_keep_the_loop_alive, loop_setup,
                                        loop_teardown),
        cmocka_unit_test_setup_teardown(nghttp2_gets_its_memory_from_the_slab, loop_setup,
                                        loop_teardown),
    };
    return cmocka_run_group_tests_name("ctx", tests, NULL, NULL);
}
