// The view of a job whose nodes the scheduler node has listed.
#pragma once

#include "job/view.h"
#include "ps/membership.h"

namespace bs::api {

// Hosts stand in the order of the scheduler node's list.  They are those of the beginning, also
// where another node has taken the place of a lost one.  All loopback addresses are one host.
job::View ViewOf(const ps::View& listed, job::Role role);

}  // namespace bs::api
